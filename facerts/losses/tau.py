"""TaU: temperature as uncertainty in contrastive learning.

Zhang, Wu, Bayrooti, Goodman: "Temperature as Uncertainty in Contrastive Learning", 2021 (arXiv 2110.04403).

A head predicts u(x), which sets the temperature of an image's own InfoNCE loss; no labels are used:

    1/τ(x) = sigmoid(u(x)) / τ_min,   so τ > τ_min, and u = 0 gives 2 τ_min
    L = mean_i −log [exp(s_ip/τ_i) / Σ_{k≠i} exp(s_ik/τ_i)],   p the other view of i's image, τ_i = τ(x_i)

Every view is an anchor with its own τ, and its pool includes its positive, as in SimCLR's NT-Xent. (The authors' code
divides the positive of both views by the first view's τ, and by default leaves it out of the pool.) Quality is u
itself, because the sigmoid saturates in float32.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from torch import Tensor

from facerts.losses.contrastive import info_nce, positives, similarities
from facerts.losses.face_loss import FaceLoss, LossValue, Outputs, Positive, settings
from facerts.nn.device import to_device
from facerts.nn.twin_heads import HeadSpec

# Smaller u are clamped when τ is reported, so that exp(−u) stays finite in float32.
MIN_LOG_ODDS = -60.0


def temperature(log_odds: Tensor, tau_min: float) -> Tensor:
    """τ = τ_min/sigmoid(u) = τ_min (1 + exp(−u)), ``(B,)`` to ``(B,)``, always finite."""
    return tau_min * (1.0 + (-log_odds.clamp_min(MIN_LOG_ODDS)).exp())


@settings
class TaU(FaceLoss):
    """SimCLR's InfoNCE with a predicted temperature for each view; quality is the log-odds u.

    A fixed temperature is no score: then quality is ‖y‖.

    Args:
        tau_min: τ_min, 0.1 in the authors' code.
        temperature: "network" predicts it from the image; "fixed" has τ_min for all, which is SimCLR.
    """

    name = "tau"
    views = 2
    tau_min: Positive = 0.1
    temperature: Literal["network", "fixed"] = "network"

    def heads(self) -> dict[str, HeadSpec]:
        return {"log_odds": HeadSpec(1)} if self.temperature == "network" else {}

    def compute(self, outputs: Outputs, labels: Tensor, *, samples: Tensor, **_: Any) -> LossValue:
        """Mean of L over all views; the class centers and the labels are not used."""
        tau_min = self.tau_min
        embedding = outputs["embedding"]
        similarity = similarities(embedding)
        if self.temperature == "fixed":
            u = similarity.new_full((len(similarity), 1), math.inf)
        else:
            u = outputs["log_odds"].to(similarity)
        # Multiply by 1/τ, which may be 0, instead of dividing by τ.
        logits = similarity * (u.sigmoid() / tau_min)
        loss = info_nce(logits, positives(to_device(samples, embedding.device)))
        tau = temperature(u.detach().squeeze(1), tau_min)
        return LossValue(loss.mean(), per_image={"temperature": tau})

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        if self.temperature == "fixed":
            return super().score(outputs)
        u = outputs["log_odds"].squeeze(1)
        return self.scored(outputs, quality=u, uncertainty=temperature(u, self.tau_min))
