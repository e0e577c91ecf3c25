"""CosFace: an additive margin on the target's cosine.

Wang, Wang, Zhou, Ji, Gong, Zhou, Li, Liu: "CosFace: Large Margin Cosine Loss for Deep Face Recognition",
CVPR 2018, Eq. 4:

    L = −log  exp(γ (cos θ_c − m)) / (exp(γ (cos θ_c − m)) + Σ_{j ≠ c} exp(γ cos θ_j))
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from facerts.losses.face_loss import ClassificationLoss, settings


@settings
class CosFace(ClassificationLoss):
    """Scaled-cosine softmax with margin m on the cosine (Eq. 4); quality is ‖y‖.

    Args:
        margin: m, after the ramp; insightface's code uses 0.4.
    """

    name = "cosface"
    margin: Annotated[float, Field(ge=0, lt=2)] = 0.35

    def apply_margin(self, cosine: Tensor, embedding: Tensor, ramp: float) -> Tensor:
        """cos θ − m."""
        return cosine - self.margin * ramp
