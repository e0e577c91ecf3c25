"""ArcFace: an additive angular margin on the target's angle.

Deng, Guo, Xue, Zafeiriou: "ArcFace: Additive Angular Margin Loss for Deep Face Recognition",
CVPR 2019, Eq. 3:

    L = −log  exp(γ cos(θ_c + m)) / (exp(γ cos(θ_c + m)) + Σ_{j ≠ c} exp(γ cos θ_j))
"""

from __future__ import annotations

from facerts.losses.face_loss import ArcMarginLoss, settings


@settings
class ArcFace(ArcMarginLoss):
    """Scaled-cosine softmax with margin m (Eq. 3); quality is ‖y‖."""

    name = "arcface"
