"""Embeddings that are Gaussians: their variances, their likelihood to be one person, and one number for each.

Shi, Jain: "Probabilistic Face Embeddings", ICCV 2019.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Variances divide and stand in logarithms: from 1e-6, where noise is no longer felt, to 1e6, far from overflow.
SMALLEST_LOG_VARIANCE, LARGEST_LOG_VARIANCE = math.log(1e-6), math.log(1e6)


def bounded(log_variance: Tensor) -> Tensor:
    """Log variances kept within [log 1e-6, log 1e6].

    The gradient passes as if there were no bounds: a clamp's own would be 0 beyond them, and what once got there
    could never come back.
    """
    clamped = log_variance.clamp(SMALLEST_LOG_VARIANCE, LARGEST_LOG_VARIANCE)
    return log_variance + (clamped - log_variance).detach()


def harmonic_mean(variance: Tensor) -> Tensor:
    """``(B, d)`` variances, all above 0, to ``(B,)``: the paper's one number for a face's uncertainty."""
    return 1.0 / variance.reciprocal().mean(dim=1)


def mutual_likelihood(
    first: Tensor, first_variance: Tensor, second: Tensor, second_variance: Tensor
) -> Tensor:
    """Mutual likelihood score: log-density at 0 of the difference of two Gaussians (Eq. 3).

        −½ Σ_l [(μ_il − μ_jl)² / (σ²_il + σ²_jl) + log(σ²_il + σ²_jl)] − (d/2) log 2π

    Args:
        first: ``(P, d)`` means.
        first_variance: ``(P, d)``, above 0.
        second: ``(P, d)`` means.
        second_variance: ``(P, d)``, above 0.

    Returns:
        ``(P,)``.
    """
    variance = first_variance + second_variance
    terms = (first - second).square() / variance + torch.log(variance)
    return -0.5 * terms.sum(dim=1) - 0.5 * first.shape[1] * math.log(2.0 * math.pi)
