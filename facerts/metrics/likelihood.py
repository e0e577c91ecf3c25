"""Gaussian embeddings: the likelihood that two are the same face, and fusion of several of one face."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.metrics.verification import CHUNK, Scores


def mutual_likelihood(
    embedding: NDArray[np.floating], variance: NDArray[np.floating], pairs: NDArray[np.integer]
) -> Scores:
    """``(P,) float64`` mutual likelihood scores: log-densities at 0 of the difference of the two Gaussians of pairs.

    Means and variances, above 0, are ``(N, d)``, pairs ``(P, 2)`` row numbers. Source: Shi and Jain, "Probabilistic
    Face Embeddings", ICCV 2019, Eq. 3.
    """
    constant = 0.5 * embedding.shape[1] * np.log(2.0 * np.pi)
    score = np.empty(len(pairs))
    for start in range(0, len(pairs), CHUNK):
        first, second = pairs[start : start + CHUNK].T
        difference = embedding[first].astype(np.float64) - embedding[second]
        summed = variance[first].astype(np.float64) + variance[second]
        terms = difference * difference / summed + np.log(summed)
        score[start : start + CHUNK] = -0.5 * terms.sum(axis=1) - constant
    return score


def fused_gaussian(means: NDArray[np.floating], variances: NDArray[np.floating]) -> tuple[Scores, Scores]:
    """Fuse several Gaussians of one face by their product: μ = σ² Σ_v μ_v / σ_v² with 1/σ² = Σ_v 1/σ_v².

    Means and variances ``(V, N, d)`` of V views give ``(N, d) float64`` means, not of unit length, and variances. This
    assumes that the views are independent given the face. If they are not, σ² is too low. Source: Shi and Jain,
    "Probabilistic Face Embeddings", ICCV 2019, "Fusion with PFEs".
    """
    precision = 1.0 / np.asarray(variances, dtype=np.float64)
    fused = 1.0 / precision.sum(axis=0)
    return (means * precision).sum(axis=0) * fused, fused
