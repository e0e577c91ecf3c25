"""Scores of a picture from a trained classifier: functions of its logits, its cosines or its dropped embeddings.

A classifier trained on C identities has, of each picture, the logits f = γ cos θ to its class centers. Its own
confidence is a quality that nothing was trained for. All scores are higher for what should be better. Probabilities
are told by their logarithm, which orders pictures as they do but keeps apart what is 1 in float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.training.methods.robust_loss import newton_temperature

# A high temperature means a good picture. The paper does not say which way it points; against all class centers,
# held-out faces lose temperature as they are degraded. (What TempNet learns from its batches falls the other way.)
TEMPERATURE_SIGN = 1.0


def max_softmax(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """log max_k softmax(f/T)_k: ``(B, C)`` to ``(B,) float64``.

    Hendrycks, Gimpel: "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks",
    ICLR 2017; with T as in ODIN, Eq. 1 (Liang, Li, Srikant, ICLR 2018).
    """
    scaled = logits.double() / temperature
    top, surest = scaled.max(dim=1, keepdim=True)
    # The others' share by itself: added to 1 it would be lost where a network is sure.
    others = (scaled - top).exp().scatter(1, surest, 0.0).sum(dim=1)
    return -others.log1p()


def negative_energy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """−E(x) = T log Σ_k exp(f_k/T): ``(B, C)`` to ``(B,) float64``.

    Liu, Wang, Owens, Li: "Energy-based Out-of-distribution Detection", NeurIPS 2020, Eq. 4.
    """
    return temperature * (logits.double() / temperature).logsumexp(dim=1)


def mean_softmax(members: Iterable[Tensor]) -> Tensor:
    """log max_k (1/M) Σ_m softmax(f_m)_k: M times ``(B, C)`` logits, one at a time, to ``(B,) float64``.

    Members are the passes of MC dropout (Gal, Ghahramani: "Dropout as a Bayesian Approximation", ICML 2016, Eq. 6)
    or the networks of an ensemble (Lakshminarayanan, Pritzel, Blundell: "Simple and Scalable Predictive Uncertainty
    Estimation using Deep Ensembles", NeurIPS 2017, section 2.4).

    Raises:
        ValueError: no member.
    """
    total, count = None, 0
    for logits in members:
        log_probability = logits.double().log_softmax(dim=1)
        total = log_probability if total is None else torch.logaddexp(total, log_probability)
        count += 1
    if total is None:
        raise ValueError("no member to take the mean of")
    return total.amax(dim=1) - math.log(count)


def stability(embeddings: Tensor) -> Tensor:
    """2 σ(−mean_{i<j} ‖y_i − y_j‖) of m unit embeddings of a picture: ``(m, B, d)`` to ``(B,)``, in (0, 1].

    Terhörst, Kolf, Damer, Kirchbuchner, Kuijper: "SER-FIQ: Unsupervised Estimation of Face Image Quality Based on
    Stochastic Embedding Robustness", CVPR 2020. The mean is over the pairs, as in the authors' code; over all m²
    it would be smaller by (m − 1)/m and order pictures alike.

    Args:
        embeddings: of any length; m at least 2.
    """
    passes = F.normalize(embeddings, dim=2).transpose(0, 1).contiguous()
    # Not by way of dot products, which would lose the distance of embeddings that hardly differ.
    distance = torch.cdist(passes, passes, compute_mode="donot_use_mm_for_euclid_dist")
    count = passes.shape[1]
    return 2.0 * torch.sigmoid(-distance.sum(dim=(1, 2)) / (count * (count - 1)))


def solved_temperature(cosine: Tensor, rho: float, floor: float) -> Tensor:
    """± the temperature at which a picture's robust loss against all class centers is least.

    Qiu et al.: "To Cool or not to Cool? Temperature Network Meets Large Foundation Models via DRO", ICML 2024: what
    their temperature network imitates, solved by Newton's method; see ``methods.robust_loss``.

    Args:
        cosine: ``(B, C)`` to the class centers.
        rho: ρ, below log C.
        floor: τ_0.

    Returns:
        ``(B,) float64``, with the sign that makes higher better.
    """
    return TEMPERATURE_SIGN * newton_temperature(cosine, rho, floor)
