"""AdaFace: a margin that adapts to image quality, as measured by the norm of the embedding.

Kim, Jain, Liu: "AdaFace: Quality Adaptive Margin for Face Recognition", CVPR 2022. μ and σ are the moving mean and
standard deviation of ‖y‖ over the batches:

    ẑ = clip((‖y‖ − μ) / (σ / h), −1, 1)                                      no gradient flows through ẑ
    g_angle = −m ẑ,   g_add = m ẑ + m
    L = −log  exp(γ f) / (exp(γ f) + Σ_{j ≠ c} exp(γ cos θ_j)),   f = cos(θ_c + g_angle) − g_add

with θ_c + g_angle clamped to [0, π]. The head is ArcFace at ẑ = −1 and CosFace at ẑ = 0. At ẑ = 1 the angular margin is
negative. Hard images therefore get the most weight when their quality is good and the least when it is poor.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from facerts.losses.collectives import Processes
from facerts.losses.face_loss import (
    Angle,
    ArcMarginLoss,
    ImageTerms,
    LossValue,
    Noise,
    Outputs,
    Positive,
    settings,
)
from facerts.losses.margin import MarginGradient, clamped_angular

NORM_RANGE = (1e-3, 100.0)
# If all norms were equal, ẑ would be 0/0.
MIN_DEVIATION = 1e-3


class NormStatistics(nn.Module):
    """Moving mean μ and standard deviation σ of the clipped norms; initially 20 and 100, as in the authors' code."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(20.0))
        self.register_buffer("std", torch.tensor(100.0))

    def update(self, norm: Tensor, momentum: float) -> None:
        """Move towards the mean and standard deviation of a batch's norms ``(B,)``."""
        # Bessel's correction would divide by 0 for a single image.
        self.mean.lerp_(norm.mean().to(self.mean), 1.0 - momentum)
        self.std.lerp_(norm.std(correction=0).to(self.std), 1.0 - momentum)


def clipped_norm(embedding: Tensor) -> Tensor:
    """‖y‖ clipped as in the authors' code: ``(B, d)`` to ``(B,)``, without gradient."""
    norm: Tensor = torch.linalg.vector_norm(embedding.detach(), dim=1)
    return norm.clamp(*NORM_RANGE)


def relative_quality(norm: Tensor, mean: Tensor, std: Tensor, concentration: float) -> Tensor:
    """ẑ: norms ``(B,)`` to ``(B,)`` in [−1, 1], negative for images of below-average quality."""
    return ((norm - mean) * concentration / std.clamp_min(MIN_DEVIATION)).clamp(-1.0, 1.0)


def adaptive_margin(cosine: Tensor, z: Tensor, margin: float, gradient: MarginGradient = "exact") -> Tensor:
    """f = cos(θ + g_angle) − g_add, from own cosines cos θ and ẑ, ``(B,)`` each, to ``(B,)``; the margin is m."""
    return clamped_angular(cosine, -margin * z, gradient) - (margin * z + margin)


@settings
class AdaFace(ArcMarginLoss):
    """ArcFace's margin for poor images, a negative angular margin for good ones; quality is ‖y‖.

    Args:
        margin: m after the ramp, used both for the angle (in radians) and for the cosine.
        concentration: h. A larger value clips ẑ at a smaller distance from the mean.
        momentum: weight of the old μ and σ in each update.
    """

    name = "adaface"
    margin: Angle = 0.4
    concentration: Positive = 0.33
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.99

    def build_state(self) -> NormStatistics:
        """μ and σ."""
        return NormStatistics()

    def image_terms(self, outputs: Outputs, noise: Noise) -> ImageTerms:
        return ImageTerms(
            outputs["embedding"],
            parts={"norm_mean": self.state.mean.clone(), "norm_std": self.state.std.clone()},
            per_image={"norm": torch.linalg.vector_norm(outputs["embedding"].detach(), dim=1)},
        )

    def apply_margin(self, cosine: Tensor, embedding: Tensor, ramp: float) -> Tensor:
        """f, the cosine after both margins."""
        z = relative_quality(clipped_norm(embedding), self.state.mean, self.state.std, self.concentration)
        return adaptive_margin(cosine, z, self.margin * ramp, self.margin_gradient)

    def compute(self, outputs: Outputs, labels: Tensor, *, centers: Any, **options: Any) -> LossValue:
        """The classification loss, after updating μ and σ with this batch."""
        processes = Processes() if centers is None else centers.processes
        self.state.update(processes.all_gather(clipped_norm(outputs["embedding"])), self.momentum)
        return super().compute(outputs, labels, centers=centers, **options)
