"""Backbones and heads; ``build_network`` builds a network by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from facerts.training.nn.compact import PLANS, Compact
from facerts.training.nn.inference import for_inference
from facerts.training.nn.iresnet import BLOCKS_PER_STAGE, IResNet
from facerts.training.nn.mobilefacenet import MobileFaceNet
from facerts.training.nn.patch import PATCH_PLANS, PatchNetwork
from facerts.training.nn.residual_block import recompute_activations
from facerts.training.nn.twin_heads import FaceNetwork, HeadSpec

__all__ = ["BACKBONES", "FaceNetwork", "HeadSpec", "build_network", "for_inference", "recompute_activations"]

# Every trunk takes `width` and `dropout`, and has the attribute `features`, its number of outputs.
BACKBONES: dict[str, Callable[..., IResNet | MobileFaceNet | Compact | PatchNetwork]] = {
    **{f"iresnet{depth}": partial(IResNet, depth) for depth in BLOCKS_PER_STAGE},
    **{f"iresnet{depth}_se": partial(IResNet, depth, se=True) for depth in BLOCKS_PER_STAGE},
    **{f"iresnet{depth}_lite": partial(IResNet, depth, lite=True) for depth in BLOCKS_PER_STAGE},
    **{plan: partial(Compact, plan) for plan in PLANS},
    **{plan: partial(PatchNetwork, plan) for plan in PATCH_PLANS},
    "mobilefacenet": MobileFaceNet,
    "mobilefacenet_wide": partial(MobileFaceNet, widened=True),
}


def build_network(
    backbone: str,
    *,
    embedding_size: int = 512,
    heads: Mapping[str, HeadSpec] | None = None,
    width: float = 1.0,
    dropout: float = 0.0,
) -> FaceNetwork:
    """Build a backbone with an embedding head, unless its size is 0, and the further heads of a method."""
    trunk = BACKBONES[backbone](width=width, dropout=dropout)
    return FaceNetwork(trunk, trunk.features, embedding_size, heads or {})
