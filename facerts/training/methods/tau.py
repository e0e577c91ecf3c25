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
from typing import Literal

from pydantic import Field
from torch import Tensor

from facerts.training.device import to_device
from facerts.training.methods.contrastive import info_nce, positives, similarities
from facerts.training.methods.method import Batch, Centers, Loss, Method, MethodConfig, Outputs
from facerts.training.nn.twin_heads import HeadSpec

# Smaller u are clamped when τ is reported, so that exp(−u) stays finite in float32.
MIN_LOG_ODDS = -60.0


class TaUConfig(MethodConfig):
    """Settings of TaU.

    Attributes:
        tau_min: τ_min, 0.1 in the authors' code.
        temperature: "network" predicts it from the image; "fixed" has τ_min for all, which is SimCLR.
    """

    tau_min: float = Field(0.1, gt=0)
    temperature: Literal["network", "fixed"] = "network"


def temperature(log_odds: Tensor, tau_min: float) -> Tensor:
    """τ = τ_min/sigmoid(u) = τ_min (1 + exp(−u)), ``(B,)`` to ``(B,)``, always finite."""
    return tau_min * (1.0 + (-log_odds.clamp_min(MIN_LOG_ODDS)).exp())


class TaU(Method):
    """SimCLR's InfoNCE with a predicted temperature for each view; quality is the log-odds u.

    A fixed temperature is no score: then quality is ‖y‖.
    """

    name = "tau"
    Config = TaUConfig
    views = 2

    def heads(self) -> dict[str, HeadSpec]:
        return {"log_odds": HeadSpec(1)} if self.config.temperature == "network" else {}

    def loss(self, outputs: Outputs, batch: Batch, centers: Centers) -> Loss:
        """Mean of L over all views; the class centers and the labels are not used."""
        tau_min = self.config.tau_min
        embedding = outputs["embedding"]
        similarity = similarities(embedding)
        if self.config.temperature == "fixed":
            u = similarity.new_full((len(similarity), 1), math.inf)
        else:
            u = outputs["log_odds"].to(similarity)
        # Multiply by 1/τ, which may be 0, instead of dividing by τ.
        logits = similarity * (u.sigmoid() / tau_min)
        loss = info_nce(logits, positives(to_device(batch.samples, embedding.device)))
        tau = temperature(u.detach().squeeze(1), tau_min)
        return Loss(loss.mean(), per_image={"temperature": tau})

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        if self.config.temperature == "fixed":
            return super().score(outputs)
        u = outputs["log_odds"].squeeze(1)
        return self.scored(outputs, quality=u, uncertainty=temperature(u, self.config.tau_min))
