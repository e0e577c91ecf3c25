"""Margins on the target cosine, numerically stable at θ = 0 and θ = π."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

MarginGradient = Literal["exact", "straight"]

# Keeps sin θ away from 0, where its gradient is infinite; far below what float32 can resolve of 1 − cos².
MIN_SQUARED_SINE = 1e-10


def additive_angular(cosine: Tensor, margin: Tensor | float, gradient: MarginGradient = "exact") -> Tensor:
    """cos(θ + m), or for θ + m > π the fallback cos θ − m·sin m, so that the result never increases with θ.

    Args:
        cosine: ``(B,)`` cos θ between each embedding and its own class center, float32 or wider.
        margin: m in radians, in [0, π); a number or ``(B,)``.
        gradient: "exact" differentiates the formula. "straight" passes the gradient straight through, as if the
            margin were the identity in θ, as insightface's ArcFace code does. The gradient with respect to a learned
            margin is exact in both cases.

    Source: Deng et al., "ArcFace", CVPR 2019, Eq. 3.
    """
    margin = margin.to(cosine) if isinstance(margin, Tensor) else cosine.new_full((), margin)
    if gradient == "straight":
        # With the angle detached, only the margin's own gradient remains.
        angular = additive_angular(cosine.detach(), margin)
        return angular + (cosine - cosine.detach())
    sine = (1.0 - cosine.square()).clamp_min(MIN_SQUARED_SINE).sqrt()
    shifted = cosine * margin.cos() - sine * margin.sin()
    fallback = cosine - margin * margin.sin()
    return torch.where(cosine > (math.pi - margin).cos(), shifted, fallback)


def clamped_angular(cosine: Tensor, shift: Tensor, gradient: MarginGradient = "exact") -> Tensor:
    """cos(θ + shift) with θ + shift clamped to [0, π]; clamped angles get no gradient, unless it is passed "straight".

    ``shift`` ``(B,)`` is a margin of either sign in radians, in (−π, π); see ``additive_angular`` for the rest.

    Source: Kim et al., "AdaFace", CVPR 2022.
    """
    if gradient == "straight":
        return clamped_angular(cosine.detach(), shift) + (cosine - cosine.detach())
    sine = (1.0 - cosine.square()).clamp_min(MIN_SQUARED_SINE).sqrt()
    shifted = cosine * shift.cos() - sine * shift.sin()
    # θ + shift < 0 where cos θ > cos(−shift); θ + shift > π where cos θ < cos(π − shift).
    below = (shift < 0) & (cosine > shift.cos())
    above = (shift > 0) & (cosine < -shift.cos())
    return shifted.masked_fill(below, 1.0).masked_fill(above, -1.0)
