"""IResNet: the residual network of ArcFace (Deng et al., CVPR 2019, "LResNetXE-IR"; Han et al. 2017).

Differences from the ResNet of He et al.: the stem keeps the full resolution, every block is
BN – conv – BN – PReLU – conv(stride) – BN, and the features are flattened, not pooled.

The lite variant halves the resolution in the stem instead of in the first stage. Most of the time is spent at
112 x 112, which shows little more than 56 x 56 does. In the same time the lite variant can be wider.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from facerts.images import CROP_SIZE
from facerts.nn.residual_block import ResidualBlock, last_side

BLOCKS_PER_STAGE = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 14, 3),
    64: (3, 8, 16, 3),
    100: (3, 13, 30, 3),
    200: (6, 26, 60, 6),
}
STAGE_CHANNELS = (64, 128, 256, 512)
# With fewer, the CPU build of PyTorch 2.13 writes out of bounds in the backward pass of a strided 1 x 1 convolution
# in channels-last layout.
MIN_CHANNELS = 16


class SqueezeExcite(nn.Module):
    """Channel attention (Hu et al., CVPR 2018): each channel is scaled by a gate computed from the means of all."""

    def __init__(self, channels: int, reduction: int = 16) -> None:
        super().__init__()
        squeezed = max(channels // reduction, 1)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1, bias=False),
            nn.ReLU(inplace=True),
            nn.Conv2d(squeezed, channels, 1, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.mul(x, self.gate(x))


class IResNetBlock(ResidualBlock):
    """The improved residual block; the second convolution has the stride."""

    def __init__(self, inputs: int, outputs: int, stride: int, se: bool) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.PReLU(outputs),
            nn.Conv2d(outputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            SqueezeExcite(outputs) if se else nn.Identity(),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def transform(self, x: Tensor) -> Tensor:
        return torch.add(self.residual(x), self.shortcut(x))


class IResNet(nn.Sequential):
    """The trunk: ``(B, 3, S, S)`` to ``(B, features)``.

    ``width`` is a factor on the channels of every stage, of at least 16; ``lite`` moves the first stage's stride to the
    stem.
    """

    def __init__(
        self,
        depth: int,
        *,
        width: float = 1.0,
        se: bool = False,
        lite: bool = False,
        dropout: float = 0.0,
        input_size: int = CROP_SIZE,
    ) -> None:
        stem, *_ = channels = [max(MIN_CHANNELS, round(width * full)) for full in STAGE_CHANNELS]
        stem_stride, *strides = (2, 1, 2, 2, 2) if lite else (1, 2, 2, 2, 2)
        layers: list[nn.Module] = [
            nn.Sequential(
                nn.Conv2d(3, stem, 3, stem_stride, padding=1, bias=False),
                nn.BatchNorm2d(stem),
                nn.PReLU(stem),
            )
        ]
        inputs = stem
        for blocks, outputs, stride in zip(BLOCKS_PER_STAGE[depth], channels, strides, strict=True):
            stage = [IResNetBlock(inputs, outputs, stride, se)]
            stage += [IResNetBlock(outputs, outputs, 1, se) for _ in range(blocks - 1)]
            layers.append(nn.Sequential(*stage))
            inputs = outputs
        layers += [nn.BatchNorm2d(inputs), nn.Dropout(dropout), nn.Flatten()]
        super().__init__(*layers)
        self.features = inputs * last_side(input_size) ** 2
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.1)
