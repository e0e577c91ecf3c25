"""PFE: probabilistic face embeddings, learned on top of a trained network.

Shi, Jain: "Probabilistic Face Embeddings", ICCV 2019.

The unit embedding of the frozen network is the mean μ of a Gaussian; a head on the same features learns log σ².
Training maximizes the mutual likelihood score (Eq. 3) of the genuine pairs P of a batch:

    L = −(1/|P|) Σ_{(i, j) ∈ P} MLS(x_i, x_j)

The same score is the similarity of a pair. The uncertainty of a face is the harmonic mean of σ².
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.losses.face_loss import FaceLoss, LossValue, Outputs, settings
from facerts.losses.log_bounds import LogBounds
from facerts.nn.device import to_device
from facerts.nn.twin_heads import HeadSpec

# Variances are divisors and arguments of logarithms. At 1e-6 the noise is negligible; 1e6 is far from overflow.
LOG_VARIANCES = LogBounds(math.log(1e-6), math.log(1e6))


def harmonic_mean(variance: Tensor) -> Tensor:
    """Harmonic mean of positive variances, ``(B, d)`` to ``(B,)``: the paper's scalar uncertainty of a face."""
    return 1.0 / variance.reciprocal().mean(dim=1)


def mutual_likelihood(first: Tensor, first_variance: Tensor, second: Tensor, second_variance: Tensor) -> Tensor:
    """Mutual likelihood score: log density at 0 of the difference of two Gaussians (Eq. 3).

        −½ Σ_l [(μ_il − μ_jl)² / (σ²_il + σ²_jl) + log(σ²_il + σ²_jl)] − (d/2) log 2π

    Means and positive variances are ``(P, d)``, the scores ``(P,)``.
    """
    variance = first_variance + second_variance
    terms = (first - second).square() / variance + torch.log(variance)
    return -0.5 * terms.sum(dim=1) - 0.5 * first.shape[1] * math.log(2.0 * math.pi)


def genuine_pairs(labels: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    """Rows ``(P,)`` of the first and of the second images of every pair of two images of a person, once.

    An image that occurs twice in the batch is not paired with itself: a difference of 0 carries no information about
    its variance.
    """
    samples = to_device(samples, labels.device)
    genuine = (labels[:, None] == labels) & (samples[:, None] != samples)
    first, second = torch.nonzero(genuine.triu(diagonal=1), as_tuple=True)
    return first, second


@settings
class PFE(FaceLoss):
    """Learned variances for the embeddings of a frozen network; quality is minus the harmonic mean of σ²."""

    name = "pfe"
    sampler = "identities"
    trains = "heads"

    def heads(self) -> dict[str, HeadSpec]:
        # Without BatchNorm, the flattened features of a large network make the variances diverge within a few steps.
        return {"log_variance": HeadSpec(self.embedding_size, batch_norm=True)}

    def log_variance(self, outputs: Outputs) -> Tensor:
        """log σ² ``(B, d)``; where the head outputs 0, σ² is 1/d, the mean square of a unit vector's components."""
        return outputs["log_variance"] - math.log(self.embedding_size)

    def compute(self, outputs: Outputs, labels: Tensor, *, samples: Tensor, **_: Any) -> LossValue:
        mean, log_variance = F.normalize(outputs["embedding"].detach()), self.log_variance(outputs)
        variance = LOG_VARIANCES(log_variance).exp()
        first, second = genuine_pairs(labels, samples)
        likelihood = mutual_likelihood(mean[first], variance[first], mean[second], variance[second])
        # A batch without genuine pairs contributes nothing.
        total = -likelihood.sum() / max(len(first), 1)
        return LossValue(
            total,
            {
                "pairs": torch.full((), len(first), device=variance.device),
                "out_of_bounds": LOG_VARIANCES.images_outside(log_variance),
            },
            {"variance": harmonic_mean(variance.detach())},
        )

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        variance = self.log_variance(outputs).clamp(*LOG_VARIANCES).exp()
        uncertainty = harmonic_mean(variance)
        return self.scored(outputs, quality=-uncertainty, uncertainty=uncertainty, variance=variance)
