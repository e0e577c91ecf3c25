"""Very small residual networks, for a quality alone: a score needs far less than an embedding.

One strided convolution, as on the patches of vision transformers (Dosovitskiy et al., "An Image is Worth 16x16 Words",
ICLR 2021), reduces 112 x 112 to 28 x 28 or 14 x 14 at a hundredth of the multiply-adds. Plain 3 x 3 blocks follow,
because they are fast on a CPU in training as in use. The features are the mean and the maximum of every channel of the
last map: where something is matters less to a score than whether it is there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from facerts.nn.compact import BasicBlock

# Channels are multiples of this, the width of AVX's registers.
CHANNEL_MULTIPLE = 8


@dataclass(frozen=True)
class PatchPlan:
    """The design of a trunk.

    Attributes:
        patch: side of a patch in pixels.
        inputs: channels of the map of patches.
        stages: channels and number of blocks of each stage; every stage but the first halves the map.
    """

    patch: int
    inputs: int
    stages: tuple[tuple[int, int], ...]


PATCH_PLANS = {
    "patch": PatchPlan(4, 32, ((32, 1), (64, 2), (96, 2))),
    "patch_deep": PatchPlan(4, 32, ((32, 2), (64, 3), (96, 3))),
    "patch8": PatchPlan(8, 64, ((64, 1), (96, 2))),
    "patch8_deep": PatchPlan(8, 64, ((64, 2), (128, 2))),
}


class PatchNetwork(nn.Module):
    """The trunk: ``(B, 3, S, S)`` with any S to ``(B, features)``, as a plan of ``PATCH_PLANS`` says.

    ``width`` is a factor on every number of channels, rounded to a multiple of 8; ``dropout`` is of the features.
    """

    def __init__(self, plan: str, *, width: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()

        def widened(channels: int) -> int:
            return max(CHANNEL_MULTIPLE, round(width * channels / CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE)

        patch, inputs = PATCH_PLANS[plan].patch, widened(PATCH_PLANS[plan].inputs)
        self.stem = nn.Sequential(
            nn.Conv2d(3, inputs, patch, patch, bias=False), nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)
        )
        blocks: list[nn.Module] = []
        for stage, (channels, count) in enumerate(PATCH_PLANS[plan].stages):
            for block in range(count):
                stride = 2 if stage and not block else 1
                blocks.append(BasicBlock(inputs, widened(channels), stride))
                inputs = widened(channels)
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(dropout)
        self.features = 2 * inputs
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(self.stem(images))
        features: Tensor = self.dropout(torch.cat([x.mean(dim=(2, 3)), x.amax(dim=(2, 3))], dim=1))
        return features
