"""Margins on the target's cosine, without trouble at the ends of the angle."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

MarginGradient = Literal["exact", "straight"]

# Keeps the sine away from 0, where its gradient is infinite; far below what float32 resolves of 1 − cos².
SMALLEST_SQUARED_SINE = 1e-10


def additive_angular(cosine: Tensor, margin: Tensor | float, gradient: MarginGradient = "exact") -> Tensor:
    """cos(θ + m), and past θ + m > π the fallback cos θ − m·sin m, so that it never rises with θ.

    Args:
        cosine: ``(B,)`` cos θ of each embedding to its own class center, float32 or wider.
        margin: m in radians, in [0, π); a number or ``(B,)``.
        gradient: "exact" differentiates the formula; "straight" passes the gradient through as if the margin
            were the identity in θ, as the best-known public code of ArcFace does. Through a margin that is
            itself learned, the gradient flows either way.

    Returns:
        ``(B,)`` cosine with margin.

    Source: Deng et al., "ArcFace", CVPR 2019, Eq. 3.
    """
    margin = torch.as_tensor(margin, dtype=cosine.dtype, device=cosine.device)
    if gradient == "straight":
        # With the angle detached, what is left of the gradient is the margin's own.
        angular = additive_angular(cosine.detach(), margin)
        return angular + (cosine - cosine.detach())
    sine = (1.0 - cosine.square()).clamp_min(SMALLEST_SQUARED_SINE).sqrt()
    shifted = cosine * margin.cos() - sine * margin.sin()
    fallback = cosine - margin * margin.sin()
    return torch.where(cosine > (math.pi - margin).cos(), shifted, fallback)


def clamped_angular(cosine: Tensor, shift: Tensor, gradient: MarginGradient = "exact") -> Tensor:
    """cos(θ + shift) with θ + shift clamped to [0, π], where its gradient is 0.

    Args:
        cosine: ``(B,)`` cos θ of each embedding to its own class center, float32 or wider.
        shift: ``(B,)`` radians in (−π, π), a margin of either sign.
        gradient: see ``additive_angular``; "straight" gives clamped angles a gradient, too.

    Returns:
        ``(B,)``.

    Source: Kim et al., "AdaFace", CVPR 2022.
    """
    if gradient == "straight":
        return clamped_angular(cosine.detach(), shift) + (cosine - cosine.detach())
    sine = (1.0 - cosine.square()).clamp_min(SMALLEST_SQUARED_SINE).sqrt()
    shifted = cosine * shift.cos() - sine * shift.sin()
    # θ + shift < 0 where cos θ > cos(−shift); θ + shift > π where cos θ < cos(π − shift).
    below = (shift < 0) & (cosine > shift.cos())
    above = (shift > 0) & (cosine < -shift.cos())
    return shifted.masked_fill(below, 1.0).masked_fill(above, -1.0)
