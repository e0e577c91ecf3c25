"""Gaussian embeddings: bounds of variances, their harmonic mean, and the mutual likelihood score (MLS).

Shi, Jain: "Probabilistic Face Embeddings", ICCV 2019.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from facerts.losses.log_bounds import LogBounds

# Variances are divisors and arguments of logarithms. At 1e-6 the noise is negligible; 1e6 is far from overflow.
LOG_VARIANCES = LogBounds(math.log(1e-6), math.log(1e6))


def harmonic_mean(variance: Tensor) -> Tensor:
    """Harmonic mean of positive variances, ``(B, d)`` to ``(B,)``: the paper's scalar uncertainty of a face."""
    return 1.0 / variance.reciprocal().mean(dim=1)


def mutual_likelihood(
    first: Tensor, first_variance: Tensor, second: Tensor, second_variance: Tensor
) -> Tensor:
    """Mutual likelihood score: log density at 0 of the difference of two Gaussians (Eq. 3).

        −½ Σ_l [(μ_il − μ_jl)² / (σ²_il + σ²_jl) + log(σ²_il + σ²_jl)] − (d/2) log 2π

    Means and positive variances are ``(P, d)``, the scores ``(P,)``.
    """
    variance = first_variance + second_variance
    terms = (first - second).square() / variance + torch.log(variance)
    return -0.5 * terms.sum(dim=1) - 0.5 * first.shape[1] * math.log(2.0 * math.pi)
