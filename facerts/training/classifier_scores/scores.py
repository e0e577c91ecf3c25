"""Scores of an image from a trained classifier, as functions of logits, cosines or embeddings under dropout.

A classifier trained on C identities computes, for each image, the logits f = γ cos θ to its class centers. Its
confidence is a measure of quality that needs no training. Higher is better for all scores. Probabilities are returned
as logarithms, which rank images in the same way but do not saturate at 1 in float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.training.methods.robust_loss import newton_temperature

# A high temperature means a good image. The paper does not give a direction; measured against all class centers, the
# temperature of held-out faces falls as they are degraded. (The one that TempNet learns from batches rises.)
TEMPERATURE_SIGN = 1.0


def max_softmax(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """log max_k softmax(f/T)_k: ``(B, C)`` to ``(B,) float64``.

    Hendrycks, Gimpel: "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks",
    ICLR 2017; with T as in ODIN, Eq. 1 (Liang, Li, Srikant, ICLR 2018).
    """
    scaled = logits.double() / temperature
    top, index = scaled.max(dim=1, keepdim=True)
    # Sum the other classes separately: added to 1, they would be rounded away if the network is confident.
    others = (scaled - top).exp().scatter(1, index, 0.0).sum(dim=1)
    return -others.log1p()


def negative_energy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """−E(x) = T log Σ_k exp(f_k/T): ``(B, C)`` to ``(B,) float64``.

    Liu, Wang, Owens, Li: "Energy-based Out-of-distribution Detection", NeurIPS 2020, Eq. 4.
    """
    return temperature * (logits.double() / temperature).logsumexp(dim=1)


def mean_softmax(members: Iterable[Tensor]) -> Tensor:
    """log max_k (1/M) Σ_m softmax(f_m)_k: logits ``(B, C)`` of M members, one at a time, to ``(B,) float64``.

    Members are the passes of MC dropout (Gal, Ghahramani: "Dropout as a Bayesian Approximation", ICML 2016, Eq. 6)
    or the networks of an ensemble (Lakshminarayanan, Pritzel, Blundell: "Simple and Scalable Predictive Uncertainty
    Estimation using Deep Ensembles", NeurIPS 2017, section 2.4).

    Raises:
        ValueError: there are no members.
    """
    total, count = None, 0
    for logits in members:
        log_probability = logits.double().log_softmax(dim=1)
        total = log_probability if total is None else torch.logaddexp(total, log_probability)
        count += 1
    if total is None:
        raise ValueError("the mean needs at least one member")
    return total.amax(dim=1) - math.log(count)


def stability(embeddings: Tensor) -> Tensor:
    """2 σ(−mean_{i<j} ‖y_i − y_j‖) of m unit embeddings of an image: ``(m, B, d)`` to ``(B,)``, in (0, 1].

    Terhörst, Kolf, Damer, Kirchbuchner, Kuijper: "SER-FIQ: Unsupervised Estimation of Face Image Quality Based on
    Stochastic Embedding Robustness", CVPR 2020. The mean is over the pairs, as in the authors' code; a mean over all m²
    would be smaller by (m − 1)/m and rank images in the same way.

    Args:
        embeddings: ``(m, B, d)``, of any norm; m at least 2.
    """
    passes = F.normalize(embeddings, dim=2).transpose(0, 1).contiguous()
    # Dot products would lose the small distances between almost equal embeddings.
    distance = torch.cdist(passes, passes, compute_mode="donot_use_mm_for_euclid_dist")
    count = passes.shape[1]
    return 2.0 * torch.sigmoid(-distance.sum(dim=(1, 2)) / (count * (count - 1)))


def solved_temperature(cosine: Tensor, rho: float, tau_min: float) -> Tensor:
    """± the temperature that minimizes an image's robust loss against all class centers.

    Qiu et al.: "To Cool or not to Cool? Temperature Network Meets Large Foundation Models via DRO", ICML 2024. This is
    what their temperature network learns to predict, solved by Newton's method; see ``methods.robust_loss``.

    Args:
        cosine: ``(B, C)`` cosines to the class centers.
        rho: ρ, below log C.
        tau_min: τ_0.

    Returns:
        ``(B,) float64``; higher is better.
    """
    return TEMPERATURE_SIGN * newton_temperature(cosine, rho, tau_min)
