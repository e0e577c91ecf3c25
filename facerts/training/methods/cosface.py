"""CosFace: an additive margin on the target's cosine.

Wang, Wang, Zhou, Ji, Gong, Zhou, Li, Liu: "CosFace: Large Margin Cosine Loss for Deep Face Recognition",
CVPR 2018, Eq. 4:

    L = −log  exp(γ (cos θ_c − m)) / (exp(γ (cos θ_c − m)) + Σ_{j ≠ c} exp(γ cos θ_j))

It learns no uncertainty of its own; the norm of the embedding serves as quality.
"""

from __future__ import annotations

from pydantic import Field

from facerts.training.methods.method import Batch, ClassificationMethod, ImageTerms, Margin, MethodConfig


class CosFaceConfig(MethodConfig):
    """Settings of CosFace: γ, and m after the ramp. The defaults are the paper's; insightface's code uses m = 0.4."""

    logit_scale: float = Field(64.0, gt=0)
    margin: float = Field(0.35, ge=0, lt=2)


class CosFace(ClassificationMethod):
    """Scaled-cosine softmax with margin m on the cosine (Eq. 4); quality is ‖y‖."""

    name = "cosface"
    Config = CosFaceConfig

    def margin(self, terms: ImageTerms, batch: Batch) -> Margin:
        margin = self.config.margin * batch.ramp
        return lambda cosine: cosine - margin
