"""AdaFace: a margin whose shape adapts to the image's quality, read from the length of its embedding.

Kim, Jain, Liu: "AdaFace: Quality Adaptive Margin for Face Recognition", CVPR 2022. μ and σ are moving mean and
standard deviation of ‖y‖ over the batches:

    ẑ = clip((‖y‖ − μ) / (σ / h), −1, 1)                                               no gradient through ẑ
    g_angle = −m ẑ,   g_add = m ẑ + m
    L = −log  exp(γ f) / (exp(γ f) + Σ_{j ≠ c} exp(γ cos θ_j)),   f = cos(θ_c + g_angle) − g_add

with θ_c + g_angle clamped to [0, π]. At ẑ = −1 the head is ArcFace, at ẑ = 0 CosFace; at ẑ = 1 the angular margin is
negative, so that hard images count for most where the quality is good and for least where it is poor.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from facerts.training.methods.base import (
    Batch,
    Centers,
    ClassificationMethod,
    ImageTerms,
    Loss,
    Margin,
    MarginConfig,
    Outputs,
    unit_embedding,
)
from facerts.training.methods.margin import MarginGradient, clamped_angular

NORM_RANGE = (1e-3, 100.0)
# Lengths that are all alike would make ẑ 0/0.
SMALLEST_DEVIATION = 1e-3


class AdaFaceConfig(MarginConfig):
    """Settings of AdaFace; the defaults are the paper's.

    Attributes:
        margin: m, of the angle in radians and of the cosine alike, after the ramp.
        concentration: h, how much of the lengths' spread ẑ resolves before it is clipped.
        momentum: the share of μ and σ that a batch leaves as it was.
    """

    margin: float = Field(0.4, ge=0, lt=3.1415)
    concentration: float = Field(0.33, gt=0)
    momentum: float = Field(0.99, ge=0, lt=1)


class NormStatistics(nn.Module):
    """μ and σ: moving mean and standard deviation of the clipped lengths, from 20 and 100 as in the public code."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(20.0))
        self.register_buffer("std", torch.tensor(100.0))

    def update(self, norm: Tensor, momentum: float) -> None:
        """Move towards the mean and deviation of a batch's lengths ``(B,)``."""
        # Without Bessel's correction: it divides by 0 for a single image.
        self.mean.lerp_(norm.mean().to(self.mean), 1.0 - momentum)
        self.std.lerp_(norm.std(correction=0).to(self.std), 1.0 - momentum)


def clipped_norm(embedding: Tensor) -> Tensor:
    """‖y‖ within the range of the public code: ``(B, d)`` to ``(B,)``, without gradient."""
    norm: Tensor = torch.linalg.vector_norm(embedding.detach(), dim=1)
    return norm.clamp(*NORM_RANGE)


def relative_quality(norm: Tensor, mean: Tensor, std: Tensor, concentration: float) -> Tensor:
    """ẑ: ``(B,)`` lengths to ``(B,)`` in [−1, 1], below 0 where an image is poorer than most."""
    return ((norm - mean) * concentration / std.clamp_min(SMALLEST_DEVIATION)).clamp(-1.0, 1.0)


def adaptive_margin(cosine: Tensor, z: Tensor, margin: float, gradient: MarginGradient = "exact") -> Tensor:
    """f = cos(θ + g_angle) − g_add.

    Args:
        cosine: ``(B,)`` cos θ of each embedding to its own class center.
        z: ``(B,)`` ẑ.
        margin: m.
        gradient: see ``margin.additive_angular``.

    Returns:
        ``(B,)``.
    """
    return clamped_angular(cosine, -margin * z, gradient) - (margin * z + margin)


class AdaFace(ClassificationMethod):
    """Between ArcFace's margin for poor images and a negative angular one for good ones; quality is ‖y‖."""

    name = "adaface"
    Config = AdaFaceConfig
    state: NormStatistics

    def __init__(self, config: AdaFaceConfig, embedding_size: int = 512) -> None:
        super().__init__(config, embedding_size)
        self.state = NormStatistics()

    def image_terms(self, outputs: Outputs, batch: Batch) -> ImageTerms:
        return ImageTerms(
            outputs["embedding"],
            parts={"norm_mean": self.state.mean.clone(), "norm_std": self.state.std.clone()},
            per_image={"norm": torch.linalg.vector_norm(outputs["embedding"].detach(), dim=1)},
        )

    def margin(self, terms: ImageTerms, batch: Batch) -> Margin:
        norm = clipped_norm(terms.embedding)
        z = relative_quality(norm, self.state.mean, self.state.std, self.config.concentration)
        margin = self.config.margin * batch.ramp
        return lambda cosine: adaptive_margin(cosine, z, margin, self.config.margin_gradient)

    def loss(self, outputs: Outputs, batch: Batch, centers: Centers) -> Loss:
        """The classification loss, after μ and σ have moved on with this batch."""
        self.state.update(batch.processes.gather(clipped_norm(outputs["embedding"])), self.config.momentum)
        return super().loss(outputs, batch, centers)

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        scored = unit_embedding(outputs)
        return {**scored, "quality": scored["norm"], "uncertainty": -scored["norm"]}
