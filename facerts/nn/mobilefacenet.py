"""MobileFaceNet (Chen et al., CCBR 2018): the paper's network, and the widened variant that is commonly trained.

Inverted residuals as in MobileNetV2, PReLU, and a depthwise convolution over the whole last map in place of global
pooling, so that the corners of a face can count less than its center.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from facerts.images import CROP_SIZE
from facerts.nn.residual_block import ResidualBlock, init_convolutions, last_side


@dataclass(frozen=True)
class BottleneckStage:
    """A sequence of bottlenecks, with ``hidden`` channels inside them and ``outputs`` between them."""

    hidden: int
    outputs: int
    blocks: int
    stride: int


# Table 1 of the paper: expansion 2 in the stages, 4 where the map shrinks.
PAPER = (
    BottleneckStage(128, 64, 5, 2),
    BottleneckStage(256, 128, 1, 2),
    BottleneckStage(256, 128, 6, 1),
    BottleneckStage(512, 128, 1, 2),
    BottleneckStage(256, 128, 2, 1),
)
# The common variant: twice the channels between bottlenecks, the same hidden channels.
WIDENED = (
    BottleneckStage(128, 128, 1, 2),
    BottleneckStage(128, 128, 4, 1),
    BottleneckStage(256, 256, 1, 2),
    BottleneckStage(256, 256, 6, 1),
    BottleneckStage(512, 256, 1, 2),
    BottleneckStage(256, 256, 2, 1),
)


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution padded to keep the size at stride 1, and BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Bottleneck(ResidualBlock):
    """Inverted residual: expand, convolve depthwise, project linearly."""

    def __init__(self, inputs: int, hidden: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            conv(inputs, hidden, 1),
            nn.PReLU(hidden),
            conv(hidden, hidden, 3, stride, groups=hidden),
            nn.PReLU(hidden),
            conv(hidden, outputs, 1),
        )
        self.residual = stride == 1 and inputs == outputs

    def transform(self, x: Tensor) -> Tensor:
        projected: Tensor = self.layers(x)
        return x + projected if self.residual else projected


class MobileFaceNet(nn.Sequential):
    """The trunk: ``(B, 3, S, S)`` to ``(B, 512 · width)``; ``widened`` is the common variant instead of the paper's."""

    def __init__(
        self,
        *,
        widened: bool = False,
        width: float = 1.0,
        dropout: float = 0.0,
        input_size: int = CROP_SIZE,
    ) -> None:
        def scaled(channels: int) -> int:
            return max(8, round(width * channels))

        stem = scaled(128 if widened else 64)
        # The widened stem's second convolution keeps the paper's 64 groups.
        groups = scaled(64) if widened else stem
        layers: list[nn.Module] = [
            conv(3, stem, 3, 2),
            nn.PReLU(stem),
            conv(stem, stem, 3, groups=groups),
            nn.PReLU(stem),
        ]
        inputs = stem
        for stage in WIDENED if widened else PAPER:
            outputs = scaled(stage.outputs)
            for block in range(stage.blocks):
                stride = stage.stride if block == 0 else 1
                layers.append(Bottleneck(inputs, scaled(stage.hidden), outputs, stride))
                inputs = outputs
        features = scaled(512)
        layers += [conv(inputs, features, 1), nn.PReLU(features)]
        layers += [
            nn.Conv2d(features, features, last_side(input_size), groups=features, bias=False),
            nn.BatchNorm2d(features),
            nn.Dropout(dropout),
            nn.Flatten(),
        ]
        super().__init__(*layers)
        self.features = features
        init_convolutions(self)
