"""ESupCon: supervised contrastive learning with class prototypes among the contrasted rows.

Aljundi, Patel, Sulc, Olmeda, Chumerin: "Contrastive Classification and Representation Learning with Probabilistic
Interpretation", AAAI 2023. The prototypes θ_k are the unit class centers; all similarities are divided by τ:

    ℓ_pt(i)   = −s_{iθ_y} + log (Σ_k exp s_{iθ_k} + Σ_{j≠i} exp s_ij)
    ℓ_pt(θ_k) = mean over i of class k of ℓ_pt(i)
    L = (1/(2N + K)) (Σ_k ℓ_pt(θ_k) + Σ_i ℓ_SupCon(i))

The inner Σ_k runs over all prototypes. The outer sum, and thus K, covers the classes in the batch. In the paper it
covers all classes, but with many thousands of identities no batch contains them all.

As in the paper, there is no projection network: rows and prototypes are compared as the embeddings that are used later.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from facerts.losses.contrastive import (
    info_nce,
    log_pool,
    members,
    positives,
    similarities,
    tightness,
)
from facerts.losses.face_loss import LossValue, Outputs, settings
from facerts.losses.supcon import IdentityContrast


def prototype_loss(logits: Tensor, prototype_logits: Tensor, labels: Tensor) -> Tensor:
    """ℓ_pt(i) ``(B,)``, from similarities of the rows ``(B, B)`` and to the prototypes ``(B, C)``, divided by τ."""
    pool = torch.logaddexp(prototype_logits.logsumexp(dim=1), log_pool(logits))
    return tightness(prototype_logits, labels) + pool


def class_means(values: Tensor, labels: Tensor) -> Tensor:
    """Mean value of each class in the batch, ``(B,)`` to ``(K,)``."""
    member = members(labels).to(values)
    return values @ member / member.sum(dim=0)


@settings
class ESupCon(IdentityContrast):
    """SupCon and the prototype loss, averaged jointly over rows and classes; quality is ‖y‖."""

    name = "esupcon"
    needs_centers = True

    def compute(self, outputs: Outputs, labels: Tensor, *, centers: Any, **_: Any) -> LossValue:
        """L of the module docstring."""
        embedding, temperature = outputs["embedding"], self.temperature
        logits = similarities(embedding) / temperature
        prototypes = class_means(prototype_loss(logits, centers.cosines(embedding) / temperature, labels), labels)
        supcon = info_nce(logits, positives(labels))
        total = torch.cat([prototypes, supcon]).mean()
        return LossValue(total, {"prototypes": prototypes.detach().mean(), "supcon": supcon.detach().mean()})
