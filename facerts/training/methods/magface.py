"""MagFace: a margin that grows with the norm of the embedding, and a regularizer that rewards large norms.

Meng, Zhao, Huang, Zhou: "MagFace: A Universal Representation for Face Recognition and Quality Assessment",
CVPR 2021. With a = ‖y‖ clipped to [l_a, u_a]:

    m(a) = l_m + (u_m − l_m) (a − l_a) / (u_a − l_a)                                           margin, in radians
    g(a) = a / u_a² + 1 / a                                                 convex, minimal at a = u_a
    L = −log  exp(γ cos(θ_c + m(a))) / (exp(γ cos(θ_c + m(a))) + Σ_{j ≠ c} exp(γ cos θ_j))  +  λ_g g(a)

A large norm demands a large margin, which only easy faces can satisfy, and g rewards large norms. The norm therefore
becomes a measure of quality. The loss has a single optimum in a, which grows with cos θ_c, if λ_g ≥ γ K / −g'(l_a)
with K the slope of m; with the paper's settings this bound is 22.6.
"""

from __future__ import annotations

import torch
from pydantic import Field, model_validator
from torch import Tensor

from facerts.training.methods.margin import MarginGradient, additive_angular
from facerts.training.methods.method import (
    Batch,
    ClassificationMethod,
    ImageTerms,
    Margin,
    MethodConfig,
    Outputs,
)


class MagFaceConfig(MethodConfig):
    """Settings of MagFace; the defaults are the paper's.

    Attributes:
        logit_scale: γ.
        lower_norm, upper_norm: l_a and u_a, to which norms are clipped.
        lower_margin, upper_margin: l_m and u_m, margins at these norms in radians, after the ramp.
        regularizer_weight: λ_g.
        margin_gradient: see ``margin.additive_angular``.
    """

    logit_scale: float = Field(64.0, gt=0)
    lower_norm: float = Field(10.0, gt=0)
    upper_norm: float = Field(110.0, gt=0)
    lower_margin: float = Field(0.45, ge=0, lt=3.1415)
    upper_margin: float = Field(0.8, ge=0, lt=3.1415)
    regularizer_weight: float = Field(35.0, ge=0)
    margin_gradient: MarginGradient = "exact"

    @model_validator(mode="after")
    def bounds_are_ordered(self) -> MagFaceConfig:
        if self.lower_norm >= self.upper_norm:
            raise ValueError(f"lower_norm {self.lower_norm:g} must be below upper_norm {self.upper_norm:g}")
        if self.lower_margin > self.upper_margin:
            raise ValueError(
                f"lower_margin {self.lower_margin:g} must not exceed upper_margin {self.upper_margin:g}"
            )
        return self


def magnitude(embedding: Tensor, config: MagFaceConfig) -> Tensor:
    """a: embeddings ``(B, d)`` to norms ``(B,)`` in [l_a, u_a]; embeddings outside that range get no gradient."""
    norm: Tensor = torch.linalg.vector_norm(embedding, dim=1)
    return norm.clamp(config.lower_norm, config.upper_norm)


def adaptive_margin(a: Tensor, config: MagFaceConfig) -> Tensor:
    """m(a): norms ``(B,)`` to margins ``(B,)`` in radians, linear from l_m to u_m."""
    slope = (config.upper_margin - config.lower_margin) / (config.upper_norm - config.lower_norm)
    return config.lower_margin + slope * (a - config.lower_norm)


def regularizer(a: Tensor, config: MagFaceConfig) -> Tensor:
    """g(a): norms ``(B,)`` to ``(B,)``; g'(a) = 1/u_a² − 1/a²."""
    return a / config.upper_norm**2 + 1.0 / a


class MagFace(ClassificationMethod):
    """ArcFace with a margin that grows with ‖y‖, and a reward for large norms; quality is ‖y‖."""

    name = "magface"
    Config = MagFaceConfig

    def image_terms(self, outputs: Outputs, batch: Batch) -> ImageTerms:
        embedding = outputs["embedding"]
        g = regularizer(magnitude(embedding, self.config), self.config)
        return ImageTerms(
            embedding,
            penalty=self.config.regularizer_weight * g,
            parts={"regularizer": g.detach().mean()},
            per_image={"norm": torch.linalg.vector_norm(embedding.detach(), dim=1)},
        )

    def margin(self, terms: ImageTerms, batch: Batch) -> Margin:
        margin = adaptive_margin(magnitude(terms.embedding, self.config), self.config) * batch.ramp
        return lambda cosine: additive_angular(cosine, margin, self.config.margin_gradient)
