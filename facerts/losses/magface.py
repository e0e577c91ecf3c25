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
from pydantic import model_validator
from torch import Tensor

from facerts.losses.face_loss import (
    Angle,
    ClassificationLoss,
    ImageTerms,
    Noise,
    NonNegative,
    Outputs,
    Positive,
    settings,
)
from facerts.losses.margin import MarginGradient, additive_angular


@settings
class MagFace(ClassificationLoss):
    """ArcFace with a margin that grows with ‖y‖, and a reward for large norms; quality is ‖y‖.

    Args:
        lower_norm, upper_norm: l_a and u_a, to which norms are clipped.
        lower_margin, upper_margin: l_m and u_m, margins at these norms in radians, after the ramp.
        regularizer_weight: λ_g.
        margin_gradient: see ``margin.additive_angular``.
    """

    name = "magface"
    lower_norm: Positive = 10.0
    upper_norm: Positive = 110.0
    lower_margin: Angle = 0.45
    upper_margin: Angle = 0.8
    regularizer_weight: NonNegative = 35.0
    margin_gradient: MarginGradient = "exact"

    @model_validator(mode="after")
    def bounds_are_ordered(self) -> MagFace:
        """Norms and margins must rise."""
        if self.lower_norm >= self.upper_norm:
            raise ValueError(f"lower_norm {self.lower_norm:g} must be below upper_norm {self.upper_norm:g}")
        if self.lower_margin > self.upper_margin:
            raise ValueError(f"lower_margin {self.lower_margin:g} must not exceed upper_margin {self.upper_margin:g}")
        return self

    def magnitude(self, embedding: Tensor) -> Tensor:
        """a: embeddings ``(B, d)`` to norms ``(B,)`` in [l_a, u_a]; embeddings outside that range get no gradient."""
        norm: Tensor = torch.linalg.vector_norm(embedding, dim=1)
        return norm.clamp(self.lower_norm, self.upper_norm)

    def adaptive_margin(self, a: Tensor) -> Tensor:
        """m(a): norms ``(B,)`` to margins ``(B,)`` in radians, linear from l_m to u_m."""
        slope = (self.upper_margin - self.lower_margin) / (self.upper_norm - self.lower_norm)
        return self.lower_margin + slope * (a - self.lower_norm)

    def regularizer(self, a: Tensor) -> Tensor:
        """g(a): norms ``(B,)`` to ``(B,)``; g'(a) = 1/u_a² − 1/a²."""
        return a / self.upper_norm**2 + 1.0 / a

    def image_terms(self, outputs: Outputs, noise: Noise) -> ImageTerms:
        embedding = outputs["embedding"]
        g = self.regularizer(self.magnitude(embedding))
        return ImageTerms(
            embedding,
            penalty=self.regularizer_weight * g,
            parts={"regularizer": g.detach().mean()},
            per_image={"norm": torch.linalg.vector_norm(embedding.detach(), dim=1)},
        )

    def apply_margin(self, cosine: Tensor, embedding: Tensor, ramp: float) -> Tensor:
        """cos(θ + m(a))."""
        margin = self.adaptive_margin(self.magnitude(embedding)) * ramp
        return additive_angular(cosine, margin, self.margin_gradient)
