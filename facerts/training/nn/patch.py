"""Very small residual networks, for a quality alone: a score needs far less than an embedding.

One strided 4 x 4 convolution, as on the patches of vision transformers (Dosovitskiy et al., "An Image is Worth 16x16
Words", ICLR 2021), reduces 112 x 112 to 28 x 28 at a hundredth of the multiply-adds. Plain 3 x 3 blocks follow, because
they are fast on a CPU in training as in use. The features are the mean and the maximum of every channel of the last
map: where something is matters less to a score than whether it is there.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from facerts.training.nn.compact import basic

PATCH = 4
CHANNELS = (32, 32, 64, 96)
# Channels are multiples of this, the width of AVX's registers.
CHANNEL_MULTIPLE = 8
# Blocks on maps of 28, 14 and 7 pixels.
BLOCKS = {"patch": (1, 2, 2), "patch_deep": (2, 3, 3)}


class PatchNetwork(nn.Module):
    """The trunk: ``(B, 3, 112, 112)`` to ``(B, features)``.

    Args:
        plan: name from ``BLOCKS``.
        width: factor on every number of channels, rounded to a multiple of 8.
        dropout: probability of dropout of the features.
    """

    def __init__(self, plan: str, *, width: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()
        inputs, *stages = [
            max(CHANNEL_MULTIPLE, round(width * channels / CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE)
            for channels in CHANNELS
        ]
        self.stem = nn.Sequential(
            nn.Conv2d(3, inputs, PATCH, PATCH, bias=False), nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)
        )
        blocks: list[nn.Module] = []
        for number, (outputs, count) in enumerate(zip(stages, BLOCKS[plan], strict=True)):
            for block in range(count):
                stride = 2 if number and not block else 1
                blocks.append(basic(inputs, outputs, stride, hidden=0))
                inputs = outputs
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
