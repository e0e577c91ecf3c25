"""Compact residual networks for inference on a CPU core.

Time on a CPU is not determined by multiply-adds alone, so the design differs from IResNet's (``iresnet.py``):

- Two strided convolutions reduce 112 x 112 to 28 x 28 before the first block, because large maps with few channels
  keep neither vector nor matrix units busy. After them no layer has fewer than 64 channels.
- Every BatchNorm follows a convolution and every activation is a ReLU, so that a runtime can fold both into the
  convolution. (A BatchNorm before a padded convolution cannot be folded, and ONNX Runtime has no fused PReLU.)
- The convolutions are plain 3 x 3, which train many times as fast on a CPU as depthwise ones. The other kinds of block
  exist for comparison.
- A 1 x 1 convolution reduces the channels of the last map before it is flattened, because the linear layers on it
  would otherwise hold most of the weights.

Blocks: He et al., "Deep Residual Learning", CVPR 2016 (basic, bottleneck), without the activation after the sum;
Ding et al., "RepVGG", CVPR 2021 (parallel branches that become one convolution); Sandler et al., "MobileNetV2",
CVPR 2018 (inverted, depthwise), after plain blocks in the first stage as in Tan and Le, "EfficientNetV2", ICML 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.images import CROP_SIZE
from facerts.training.nn.residual_block import ResidualBlock
from facerts.training.nn.sizes import last_side

# Channels are multiples of this, the width of matrix units.
CHANNEL_MULTIPLE = 16


@dataclass(frozen=True)
class CompactStage:
    """A sequence of blocks on maps of the same size; ``hidden`` are channels inside a bottleneck or inverted block."""

    kind: str
    channels: int
    blocks: int
    hidden: int = 0


@dataclass(frozen=True)
class Plan:
    """The design of a trunk.

    Attributes:
        stem: channels after each of the two strided convolutions.
        stages: stages on maps of 28, 14 and 7 pixels.
        squeezed: channels of the last map before it is flattened.
        pooled: whether the features also include the mean activation of every channel after each stage. They measure
            the amount of edges and texture, which blur and noise change and which the last map need not keep.
    """

    stem: tuple[int, int]
    stages: tuple[CompactStage, CompactStage, CompactStage]
    squeezed: int = 64
    pooled: bool = False


BASIC = CompactStage("basic", 64, 1), CompactStage("basic", 128, 3), CompactStage("basic", 256, 1)


PLANS = {
    "compact": Plan((32, 64), BASIC),
    "compact_pooled": Plan((32, 64), BASIC, pooled=True),
    "compact_bottleneck": Plan(
        (32, 64),
        (
            CompactStage("basic", 64, 1),
            CompactStage("bottleneck", 256, 7, 64),
            CompactStage("bottleneck", 512, 3, 128),
        ),
    ),
    "compact_inverted": Plan(
        (32, 64),
        (
            CompactStage("basic", 64, 2),
            CompactStage("inverted", 128, 6, 256),
            CompactStage("inverted", 192, 3, 384),
        ),
    ),
    "compact_rep": Plan(
        (32, 64), (CompactStage("rep", 64, 3), CompactStage("rep", 128, 5), CompactStage("rep", 256, 1))
    ),
}


def conv(
    inputs: int, outputs: int, kernel: int, stride: int = 1, *, groups: int = 1, activation: bool = True
) -> nn.Sequential:
    """A convolution padded to keep the size at stride 1, BatchNorm and, if ``activation``, ReLU."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, nn.ReLU(inplace=True)) if activation else nn.Sequential(*layers)


class Residual(ResidualBlock):
    """The sum of a branch and a shortcut; the shortcut is a 1 x 1 convolution if the shapes differ."""

    def __init__(self, branch: nn.Sequential, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = branch
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv(inputs, outputs, 1, stride, activation=False)

    def transform(self, x: Tensor) -> Tensor:
        summed: Tensor = self.branch(x) + self.shortcut(x)
        return summed


def basic(inputs: int, outputs: int, stride: int, hidden: int) -> Residual:
    """Two 3 x 3 convolutions."""
    branch = nn.Sequential(conv(inputs, outputs, 3, stride), conv(outputs, outputs, 3, activation=False))
    return Residual(branch, inputs, outputs, stride)


def bottleneck(inputs: int, outputs: int, stride: int, hidden: int) -> Residual:
    """A 3 x 3 convolution between two 1 x 1 convolutions, with fewer channels inside than outside."""
    branch = nn.Sequential(
        conv(inputs, hidden, 1), conv(hidden, hidden, 3, stride), conv(hidden, outputs, 1, activation=False)
    )
    return Residual(branch, inputs, outputs, stride)


def inverted(inputs: int, outputs: int, stride: int, hidden: int) -> Residual:
    """A depthwise 3 x 3 convolution between two 1 x 1 convolutions, with more channels inside than outside."""
    branch = nn.Sequential(
        conv(inputs, hidden, 1),
        conv(hidden, hidden, 3, stride, groups=hidden),
        conv(hidden, outputs, 1, activation=False),
    )
    return Residual(branch, inputs, outputs, stride)


class RepBlock(ResidualBlock):
    """ReLU of the sum of a 3 x 3 convolution, a 1 x 1 convolution and the identity, each with its BatchNorm."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.square = conv(inputs, outputs, 3, stride, activation=False)
        self.point = conv(inputs, outputs, 1, stride, activation=False)
        self.identity = nn.BatchNorm2d(inputs) if stride == 1 and inputs == outputs else None

    def transform(self, x: Tensor) -> Tensor:
        summed = self.square(x) + self.point(x)
        return F.relu(summed if self.identity is None else summed + self.identity(x))

    @torch.no_grad()
    def folded(self) -> nn.Sequential:
        """A single 3 x 3 convolution with ReLU that computes the same in evaluation mode."""
        square, point = self.square[0], self.point[0]
        assert isinstance(square, nn.Conv2d)
        assert isinstance(point, nn.Conv2d)
        branches = [(square.weight, self.square[1]), (F.pad(point.weight, [1, 1, 1, 1]), self.point[1])]
        if self.identity is not None:
            identity = torch.zeros_like(square.weight)
            identity[range(len(identity)), range(len(identity)), 1, 1] = 1.0
            branches.append((identity, self.identity))
        folded = nn.Conv2d(square.in_channels, square.out_channels, 3, square.stride[0], 1).to(square.weight)
        folded.weight.zero_()
        assert folded.bias is not None
        folded.bias.zero_()
        for kernel, norm in branches:
            assert isinstance(norm, nn.BatchNorm2d)
            assert norm.running_mean is not None
            assert norm.running_var is not None
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            folded.weight += kernel * scale[:, None, None, None]
            folded.bias += norm.bias - norm.running_mean * scale
        return nn.Sequential(folded, nn.ReLU())


def rep(inputs: int, outputs: int, stride: int, hidden: int) -> RepBlock:
    """See ``RepBlock``."""
    return RepBlock(inputs, outputs, stride)


BLOCKS: dict[str, Callable[[int, int, int, int], ResidualBlock]] = {
    "basic": basic,
    "bottleneck": bottleneck,
    "inverted": inverted,
    "rep": rep,
}


class Compact(nn.Module):
    """The trunk: ``(B, 3, S, S)`` to ``(B, features)``, with dropout before the features are flattened.

    ``width`` is a factor on every number of channels, rounded to a multiple of 16.
    """

    def __init__(
        self, plan: str, *, width: float = 1.0, dropout: float = 0.0, input_size: int = CROP_SIZE
    ) -> None:
        super().__init__()

        def scaled(channels: int) -> int:
            return max(CHANNEL_MULTIPLE, round(width * channels / CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE)

        design = PLANS[plan]
        first, inputs = map(scaled, design.stem)
        self.stem = nn.Sequential(conv(3, first, 3, 2), conv(first, inputs, 3, 2))
        self.stages = nn.ModuleList()
        self.pooled = design.pooled
        pooled = 0
        for number, stage in enumerate(design.stages):
            outputs, hidden = scaled(stage.channels), scaled(stage.hidden)
            blocks = []
            for block in range(stage.blocks):
                stride = 2 if number and not block else 1
                blocks.append(BLOCKS[stage.kind](inputs, outputs, stride, hidden))
                inputs = outputs
            self.stages.append(nn.Sequential(*blocks))
            pooled += outputs if design.pooled else 0
        squeezed = scaled(design.squeezed)
        self.last = nn.Sequential(conv(inputs, squeezed, 1), nn.Dropout(dropout), nn.Flatten())
        self.features = squeezed * last_side(input_size) ** 2 + pooled
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.stem(images)
        pooled = []
        for stage in self.stages:
            x = stage(x)
            if self.pooled:
                pooled.append(F.adaptive_avg_pool2d(F.relu(x), 1).flatten(1))
        return torch.cat([self.last(x), *pooled], dim=1)
