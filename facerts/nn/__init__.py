"""Backbones and heads; ``build_network`` builds a network by name, ``FaceNetwork`` puts heads on any trunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from facerts.images import CROP_SIZE
from facerts.nn.compact import COMPACT_PLANS, Compact, PatchNetwork
from facerts.nn.from_torchvision import PREFIX, TorchvisionTrunk
from facerts.nn.iresnet import BLOCKS_PER_STAGE, IResNet
from facerts.nn.mobilefacenet import MobileFaceNet
from facerts.nn.residual_block import recompute_activations
from facerts.nn.twin_heads import FaceNetwork, HeadSpec

__all__ = [
    "BACKBONES",
    "Compact",
    "FaceNetwork",
    "HeadSpec",
    "IResNet",
    "MobileFaceNet",
    "PatchNetwork",
    "build_network",
    "is_backbone",
    "recompute_activations",
]

# Every trunk takes `width` and `dropout`, and all but the patch network, which pools maps of any size, `input_size`;
# the attribute `features` is the number of outputs.
BACKBONES: dict[str, Callable[..., IResNet | MobileFaceNet | Compact | PatchNetwork]] = {
    **{f"iresnet{depth}": partial(IResNet, depth) for depth in BLOCKS_PER_STAGE},
    **{f"iresnet{depth}_se": partial(IResNet, depth, se=True) for depth in BLOCKS_PER_STAGE},
    **{f"iresnet{depth}_lite": partial(IResNet, depth, lite=True) for depth in BLOCKS_PER_STAGE},
    **{plan: partial(Compact, plan) for plan in COMPACT_PLANS},
    "patch8": PatchNetwork,
    "mobilefacenet": MobileFaceNet,
    "mobilefacenet_wide": partial(MobileFaceNet, widened=True),
}


def is_backbone(name: str) -> bool:
    """Whether there is a backbone of that name; whether torchvision has one is known when it is built."""
    return name in BACKBONES or name.startswith(PREFIX)


def build_network(
    backbone: str,
    *,
    embedding_size: int = 512,
    heads: Mapping[str, HeadSpec] | None = None,
    width: float = 1.0,
    dropout: float = 0.0,
    input_size: int = CROP_SIZE,
) -> FaceNetwork:
    """Build a backbone with an embedding head, unless its size is 0, and the further heads of a method.

    The network resizes crops to a side of ``input_size`` pixels.
    """
    trunk: TorchvisionTrunk | IResNet | MobileFaceNet | Compact | PatchNetwork
    if backbone.startswith(PREFIX):
        name = backbone.removeprefix(PREFIX)
        trunk = TorchvisionTrunk(name, width=width, dropout=dropout, input_size=input_size)
    else:
        sizes = {} if BACKBONES[backbone] is PatchNetwork else {"input_size": input_size}
        trunk = BACKBONES[backbone](width=width, dropout=dropout, **sizes)
    return FaceNetwork(trunk, trunk.features, embedding_size, heads or {}, input_size)
