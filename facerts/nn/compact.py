"""A compact residual network for inference on a CPU core.

Time on a CPU is not determined by multiply-adds alone, so the design differs from IResNet's (``iresnet.py``):

- Two strided convolutions reduce 112 x 112 to 28 x 28 before the first block, because large maps with few channels
  keep neither vector nor matrix units busy. After them no layer has fewer than 64 channels.
- Every BatchNorm follows a convolution and every activation is a ReLU, so that a runtime can fold both into the
  convolution. (A BatchNorm before a padded convolution cannot be folded, and ONNX Runtime has no fused PReLU.)
- The convolutions are plain 3 x 3, which train many times as fast on a CPU as depthwise ones.
- A 1 x 1 convolution reduces the channels of the last map before it is flattened, because the linear layers on it
  would otherwise hold most of the weights.

Blocks: He et al., "Deep Residual Learning", CVPR 2016, without the activation after the sum.

``PatchNetwork`` is far smaller, for a quality alone, as a score needs less than an embedding. One strided convolution,
as on the patches of vision transformers (Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021), reduces
112 x 112 to 14 x 14 at a hundredth of the multiply-adds. The features are the mean and the maximum of every channel of
the last map: where something is matters less to a score than whether it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from facerts.images import CROP_SIZE
from facerts.nn.residual_block import ResidualBlock, init_convolutions, last_side

# Channels are multiples of these, the widths of matrix units and of AVX's registers.
CHANNEL_MULTIPLE, PATCH_MULTIPLE = 16, 8
# Channels after each of the two strided convolutions.
STEM = 32, 64
# Side of a patch in pixels, and channels of the map of patches.
PATCH, INPUTS = 8, 64
# Channels and number of blocks of each stage; every stage but the first halves the map.
PATCH_STAGES = (64, 1), (96, 2)


@dataclass(frozen=True)
class CompactPlan:
    """Channels and number of blocks of the stages on maps of 28, 14 and 7 pixels, and channels that are flattened."""

    stages: tuple[tuple[int, int], ...]
    squeezed: int


COMPACT_PLANS = {
    "compact": CompactPlan(((64, 1), (128, 3), (256, 1)), 64),
    # facerts-small: in about MobileFaceNet's time, and in 4 MB with 16 bits.
    "compact_small": CompactPlan(((64, 1), (128, 3), (192, 1)), 48),
}


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, *, activation: bool = True) -> nn.Sequential:
    """A convolution padded to keep the size at stride 1, BatchNorm and, if ``activation``, ReLU."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, nn.ReLU(inplace=True)) if activation else nn.Sequential(*layers)


class BasicBlock(ResidualBlock):
    """The sum of two 3 x 3 convolutions and a shortcut, a 1 x 1 convolution if the shapes differ."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(conv(inputs, outputs, 3, stride), conv(outputs, outputs, 3, activation=False))
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv(inputs, outputs, 1, stride, activation=False)

    def transform(self, x: Tensor) -> Tensor:
        summed: Tensor = self.branch(x) + self.shortcut(x)
        return summed


def stages_of(inputs: int, stages: Sequence[tuple[int, int]]) -> list[list[BasicBlock]]:
    """The blocks of stages, each given as its channels and number of blocks; all but the first halve the map."""
    made = []
    for number, (channels, count) in enumerate(stages):
        first = BasicBlock(inputs, channels, 2 if number else 1)
        made.append([first, *(BasicBlock(channels, channels, 1) for _ in range(count - 1))])
        inputs = channels
    return made


def scaled(channels: int, width: float, multiple: int) -> int:
    """A number of channels times the width, rounded to a multiple, at least one of it."""
    return max(multiple, round(width * channels / multiple) * multiple)


class Compact(nn.Module):
    """The trunk: ``(B, 3, S, S)`` to ``(B, features)``, with dropout before the features are flattened.

    ``plan`` is one of ``COMPACT_PLANS``; ``width`` is a factor on all numbers of channels, rounded to a multiple of 16.
    """

    def __init__(
        self, plan: str = "compact", *, width: float = 1.0, dropout: float = 0.0, input_size: int = CROP_SIZE
    ) -> None:
        super().__init__()
        stem = [scaled(channels, width, CHANNEL_MULTIPLE) for channels in STEM]
        stages = [(scaled(channels, width, CHANNEL_MULTIPLE), n) for channels, n in COMPACT_PLANS[plan].stages]
        squeezed = scaled(COMPACT_PLANS[plan].squeezed, width, CHANNEL_MULTIPLE)
        self.stem = nn.Sequential(conv(3, stem[0], 3, 2), conv(stem[0], stem[1], 3, 2))
        self.stages = nn.ModuleList(nn.Sequential(*blocks) for blocks in stages_of(stem[1], stages))
        self.last = nn.Sequential(conv(stages[-1][0], squeezed, 1), nn.Dropout(dropout), nn.Flatten())
        self.features = squeezed * last_side(input_size) ** 2
        init_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.stem(images)
        for stage in self.stages:
            x = stage(x)
        features: Tensor = self.last(x)
        return features


class PatchNetwork(nn.Module):
    """The trunk: ``(B, 3, S, S)`` with any S to ``(B, features)``.

    ``width`` is a factor on every number of channels, rounded to a multiple of 8; ``dropout`` is of the features.
    """

    def __init__(self, *, width: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()
        inputs = scaled(INPUTS, width, PATCH_MULTIPLE)
        stages = [(scaled(channels, width, PATCH_MULTIPLE), count) for channels, count in PATCH_STAGES]
        self.stem = nn.Sequential(
            nn.Conv2d(3, inputs, PATCH, PATCH, bias=False), nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)
        )
        self.blocks = nn.Sequential(*(block for blocks in stages_of(inputs, stages) for block in blocks))
        self.dropout = nn.Dropout(dropout)
        self.features = 2 * stages[-1][0]
        init_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(self.stem(images))
        features: Tensor = self.dropout(torch.cat([x.mean(dim=(2, 3)), x.amax(dim=(2, 3))], dim=1))
        return features
