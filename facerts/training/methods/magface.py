"""MagFace: a margin and a regularizer that grow with the length of the embedding.

Meng, Zhao, Huang, Zhou: "MagFace: A Universal Representation for Face Recognition and Quality Assessment",
CVPR 2021. With a = ‖y‖ clipped to [l_a, u_a]:

    m(a) = l_m + (u_m − l_m) (a − l_a) / (u_a − l_a)                                           margin, in radians
    g(a) = a / u_a² + 1 / a                                                 convex, least at a = u_a
    L = −log  exp(γ cos(θ_c + m(a))) / (exp(γ cos(θ_c + m(a))) + Σ_{j ≠ c} exp(γ cos θ_j))  +  λ_g g(a)

A long embedding has to keep a larger margin, which only easy faces can afford, and g rewards length: so that the
length becomes a quality. It has one optimum in a, growing with cos θ_c, where λ_g ≥ γ K / −g'(l_a), K the slope of m:
22.6 with the paper's settings.
"""

from __future__ import annotations

import torch
from pydantic import Field, model_validator
from torch import Tensor

from facerts.training.methods.base import (
    Batch,
    ClassificationMethod,
    ImageTerms,
    Margin,
    MethodConfig,
    Outputs,
    unit_embedding,
)
from facerts.training.methods.margin import MarginGradient, additive_angular


class MagFaceConfig(MethodConfig):
    """Settings of MagFace; the defaults are the paper's.

    Attributes:
        logit_scale: γ.
        lower_norm: l_a, below which lengths count as l_a.
        upper_norm: u_a, above which lengths count as u_a.
        lower_margin: l_m, the margin at l_a in radians, after the ramp.
        upper_margin: u_m, the margin at u_a in radians, after the ramp.
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
    def ranges_rise(self) -> MagFaceConfig:
        if self.lower_norm >= self.upper_norm:
            raise ValueError(f"lower_norm {self.lower_norm:g} must lie below upper_norm {self.upper_norm:g}")
        if self.lower_margin > self.upper_margin:
            raise ValueError(
                f"lower_margin {self.lower_margin:g} must not exceed upper_margin {self.upper_margin:g}"
            )
        return self


def magnitude(embedding: Tensor, config: MagFaceConfig) -> Tensor:
    """a: ``(B, d)`` to lengths ``(B,)`` in [l_a, u_a]; no gradient reaches embeddings outside."""
    norm: Tensor = torch.linalg.vector_norm(embedding, dim=1)
    return norm.clamp(config.lower_norm, config.upper_norm)


def adaptive_margin(a: Tensor, config: MagFaceConfig) -> Tensor:
    """m(a): ``(B,)`` lengths to ``(B,)`` radians, linear from l_m to u_m."""
    slope = (config.upper_margin - config.lower_margin) / (config.upper_norm - config.lower_norm)
    return config.lower_margin + slope * (a - config.lower_norm)


def regularizer(a: Tensor, config: MagFaceConfig) -> Tensor:
    """g(a): ``(B,)`` lengths to ``(B,)``; g'(a) = 1/u_a² − 1/a²."""
    return a / config.upper_norm**2 + 1.0 / a


class MagFace(ClassificationMethod):
    """ArcFace whose margin grows with ‖y‖, and a reward for length; quality is ‖y‖."""

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

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        scored = unit_embedding(outputs)
        return {**scored, "quality": scored["norm"], "uncertainty": -scored["norm"]}
