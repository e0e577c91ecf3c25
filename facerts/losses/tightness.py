"""Tightness: SupCon for the embedding, with a classifier learned from detached embeddings.

Aljundi, Patel, Sulc, Olmeda, Chumerin: "Contrastive Classification and Representation Learning with Probabilistic
Interpretation", AAAI 2023. The prototypes θ_k are the unit class centers:

    L = L_SupCon − mean_i ẑ_i·θ_{y_i}

The embedding is detached in the second term, which therefore moves only the prototypes, each towards the mean
direction of its identity. That term is not divided by τ.

The paper trains SupCon through a projection network here, and the prototypes on the embedding itself: with
``projection``, L_SupCon contrasts the projections of ``supcon``, and the second term does not change.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from facerts.losses.contrastive import tightness
from facerts.losses.face_loss import LossValue, Outputs, settings
from facerts.losses.supcon import SupCon


@settings
class Tightness(SupCon):
    """SupCon plus a detached classifier; quality is ‖y‖."""

    name = "tightness"
    needs_centers = True

    def compute(self, outputs: Outputs, labels: Tensor, **options: Any) -> LossValue:
        """L of the module docstring."""
        supcon = super().compute(outputs, labels).total
        tight = tightness(options["centers"].cosines(outputs["embedding"].detach()), labels).mean()
        return LossValue(supcon + tight, {"supcon": supcon.detach(), "tightness": tight.detach()})
