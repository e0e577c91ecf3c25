"""A very small residual network, for a quality alone: a score needs far less than an embedding.

One strided convolution, as on the patches of vision transformers (Dosovitskiy et al., "An Image is Worth 16x16 Words",
ICLR 2021), reduces 112 x 112 to 14 x 14 at a hundredth of the multiply-adds. Plain 3 x 3 blocks follow,
because they are fast on a CPU in training as in use. The features are the mean and the maximum of every channel of the
last map: where something is matters less to a score than whether it is there.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from facerts.nn.compact import BasicBlock

# Channels are multiples of this, the width of AVX's registers.
CHANNEL_MULTIPLE = 8


# Side of a patch in pixels, and channels of the map of patches.
PATCH, INPUTS = 8, 64
# Channels and number of blocks of each stage; every stage but the first halves the map.
STAGES = (64, 1), (96, 2)


class PatchNetwork(nn.Module):
    """The trunk: ``(B, 3, S, S)`` with any S to ``(B, features)``.

    ``width`` is a factor on every number of channels, rounded to a multiple of 8; ``dropout`` is of the features.
    """

    def __init__(self, *, width: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()

        def widened(channels: int) -> int:
            return max(CHANNEL_MULTIPLE, round(width * channels / CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE)

        inputs = widened(INPUTS)
        self.stem = nn.Sequential(
            nn.Conv2d(3, inputs, PATCH, PATCH, bias=False), nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)
        )
        blocks: list[nn.Module] = []
        for stage, (channels, count) in enumerate(STAGES):
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
