"""CR-FIQA: a head that predicts how much closer a face is to its own class center than to any other.

Boutros, Fang, Klemt, Fu, Damer: "CR-FIQA: Face Image Quality Assessment by Learning Sample Relative
Classifiability", CVPR 2023. r(x) is a linear function of the embedding before it is normalized, as in the authors'
code; of the features that a network without embedding ends with:

    CCS = cos θ_c,   NNCCS = max_{j ≠ c} cos θ_j                 cosine to the own and to the nearest other center
    CR = CCS / (NNCCS + 1 + ε),   ε = 1e-9                                                  certainty ratio
    L = L_ArcFace + λ SmoothL1(r(x), CR),   SmoothL1(e) = e²/2β where |e| < β, else |e| − β/2

The ratio is computed without margin, and no gradient flows through it. r(x) is the quality.

A variant that is not the paper's target cos θ_c itself. FaceQnet (Hernandez-Ortega et al., ICB 2019) learned from
similarities to a good image of the person in the same way. What teachers make expect of that cosine may be a part of
the target; see ``training.expected_cosine``.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.losses.face_loss import (
    ArcMarginLoss,
    LossValue,
    NonNegative,
    Outputs,
    Positive,
    settings,
)
from facerts.losses.partial_fc import PartialFC
from facerts.nn.twin_heads import HeadSpec

EPSILON = 1e-9
# If the nearest other center is almost opposite (which never happens with many identities), the ratio reaches 1e9, and
# regressing it would overflow 16-bit floats.
MAX_RATIO = 100.0


def certainty_ratio(own: Tensor, nearest: Tensor) -> Tensor:
    """CR = CCS / (NNCCS + 1 + ε), from the cosines to the own and to the nearest other center, ``(B,)`` each."""
    # Rounding may give a cosine below −1, and with it a negative or zero divisor.
    return own / (nearest.clamp_min(-1.0) + 1.0 + EPSILON)


@settings
class CRFIQA(ArcMarginLoss):
    """ArcFace plus a regression of the certainty ratio; quality is r(x).

    Args:
        regression_weight: λ.
        beta: β, the error at which the regression loss changes from squared to absolute.
        target: what the head learns: the paper's "ratio", or the "cosine" to the own center alone.
    """

    name = "crfiqa"
    regression_weight: NonNegative = 10.0
    beta: Positive = 0.5
    target: Literal["ratio", "cosine"] = "ratio"

    def heads(self) -> dict[str, HeadSpec]:
        return {self._target: HeadSpec(1, reads="embedding")}

    @property
    def _target(self) -> str:
        return "own_cosine" if self.target == "cosine" else "certainty_ratio"

    def compute(self, outputs: Outputs, labels: Tensor, *, centers: Any, **options: Any) -> LossValue:
        """ArcFace's loss plus λ times the regression loss, which alone is left where nothing learns to embed."""
        learns_to_embed = outputs["embedding"].requires_grad or centers.is_learned
        classification = (
            super().compute(outputs, labels, centers=centers, **options)
            if learns_to_embed
            else LossValue(torch.zeros(()))
        )
        with torch.no_grad():
            target = self._target_of(outputs, labels, centers)
        regression = F.smooth_l1_loss(
            outputs[self._target].squeeze(1),
            target.to(outputs[self._target]),
            beta=self.beta,
        )
        return LossValue(
            classification.total + self.regression_weight * regression,
            {**classification.parts, "regression": regression.detach()},
            {**classification.per_image, self._target: target},
        )

    def _target_of(self, outputs: Outputs, labels: Tensor, centers: PartialFC) -> Tensor:
        """What r(x) learns, ``(B,)``."""
        if self.target == "ratio":
            own, nearest = centers.own_and_nearest(outputs["embedding"], labels)
            return certainty_ratio(own, nearest).clamp(-MAX_RATIO, MAX_RATIO)
        own = centers.own(outputs["embedding"], labels)
        if "expected" not in outputs:
            return own
        return torch.lerp(own, outputs["expected"], outputs["expected_share"])

    def non_face_loss(self, outputs: Outputs) -> Tensor:
        """Non-faces resemble no one: λ times the regression loss against 0."""
        r = outputs[self._target].squeeze(1)
        loss: Tensor = self.regression_weight * F.smooth_l1_loss(r, torch.zeros_like(r), beta=self.beta)
        return loss

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        r = outputs[self._target].squeeze(1)
        return self.scored(outputs, quality=r, uncertainty=-r)
