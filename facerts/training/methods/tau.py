"""TaU: temperature as uncertainty in contrastive learning.

Zhang, Wu, Bayrooti, Goodman: "Temperature as Uncertainty in Contrastive Learning", 2021 (arXiv 2110.04403).

One more output u of the network is the temperature of an image's own InfoNCE; no labels are used:

    1/τ(x) = sigmoid(u(x)) / τ_min,   so τ > τ_min, and u = 0 gives 2 τ_min
    L = mean_i −log [exp(s_ip/τ_i) / Σ_{k≠i} exp(s_ik/τ_i)],   p the other view of i's image, τ_i = τ(x_i)

Every view is an anchor with a τ of its own, and its pool holds its positive, as in SimCLR's NT-Xent. (The authors'
code gives the positive of both views the first view's τ, and leaves it out of the pool unless told otherwise.)
Quality is u itself: after the sigmoid large values run together in float32.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from facerts.training.methods.base import Batch, Centers, Loss, Method, MethodConfig, Outputs, unit_embedding
from facerts.training.methods.contrastive import info_nce, positives, similarities
from facerts.training.nn.heads import HeadSpec

# τ of a smaller u is reported as this one's: exp(−u) must stay within float32.
SMALLEST_LOG_ODDS = -60.0


class TaUConfig(MethodConfig):
    """Settings of TaU.

    Attributes:
        smallest_temperature: τ_min; 0.1 is the authors' code's.
    """

    smallest_temperature: float = Field(0.1, gt=0)


def temperature(log_odds: Tensor, smallest: float) -> Tensor:
    """τ = τ_min/sigmoid(u) = τ_min (1 + exp(−u)), ``(B,)`` to ``(B,)``, always finite."""
    return smallest * (1.0 + (-log_odds.clamp_min(SMALLEST_LOG_ODDS)).exp())


class TaU(Method):
    """SimCLR's InfoNCE with a predicted temperature for each view; quality is u."""

    name = "tau"
    Config = TaUConfig
    views = 2

    def heads(self) -> dict[str, HeadSpec]:
        return {"log_odds": HeadSpec(1)}

    def loss(self, outputs: Outputs, batch: Batch, centers: Centers) -> Loss:
        """Mean of L over all views; the class centers and the labels have no part in it."""
        smallest = self.config.smallest_temperature
        embedding = outputs["embedding"]
        similarity = similarities(embedding)
        u = outputs["log_odds"].to(similarity)
        # 1/τ by the sigmoid, not by dividing by τ: it may be 0.
        logits = similarity * (u.sigmoid() / smallest)
        loss = info_nce(logits, positives(batch.samples.to(embedding.device)))
        tau = temperature(u.detach().squeeze(1), smallest)
        return Loss(loss.mean(), per_image={"temperature": tau})

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        u = outputs["log_odds"].squeeze(1)
        return {
            **unit_embedding(outputs),
            "quality": u,
            "uncertainty": temperature(u, self.config.smallest_temperature),
        }
