"""Similarity of embeddings that are Gaussians."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.metrics.verification import CHUNK, Scores


def mutual_likelihood(
    embedding: NDArray[np.floating], variance: NDArray[np.floating], pairs: NDArray[np.integer]
) -> Scores:
    """Mutual likelihood score of each pair: log-density at 0 of the difference of their two Gaussians.

    Args:
        embedding: ``(N, d)`` means.
        variance: ``(N, d)``, above 0.
        pairs: ``(P, 2)`` row numbers.

    Returns:
        ``(P,) float64``.

    Source: Shi and Jain, "Probabilistic Face Embeddings", ICCV 2019, Eq. 3.
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
