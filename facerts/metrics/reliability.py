"""Reliability: how well a quality score predicts errors, by rank correlation and by the error rate of each quality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.metrics.intervals import wilson


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's rank correlation of two vectors, with mean ranks for ties; 0 if one of them is constant.

    Examples:
        >>> spearman([1, 2, 3, 4], [10, 20, 40, 30])
        0.8
    """
    x, y = (np.asarray(values, dtype=np.float64) for values in (first, second))
    if x.shape != y.shape or x.ndim != 1 or len(x) < 2 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("a rank correlation needs two vectors of the same length with at least two finite numbers")
    a, b = (_ranks(values) - (len(values) + 1) / 2 for values in (x, y))
    scale = np.sqrt(np.sum(a**2) * np.sum(b**2))
    return float(np.sum(a * b) / scale) if scale > 0 else 0.0


@dataclass(frozen=True)
class Reliability:
    """Error rate in bins of about equal size, from the lowest quality to the highest.

    Attributes:
        error: ``(B,)`` share of errors.
        low: ``(B,)`` lower end of the 95% interval (Wilson).
        high: ``(B,)`` upper end.
    """

    error: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def reliability(quality: ArrayLike, error: ArrayLike, bins: int = 10) -> Reliability:
    """Error rate by quality.

    Args:
        quality: ``(P,)`` quality of each pair.
        error: ``(P,) bool``, whether the pair is an error.
        bins: maximum number of bins; equal qualities are never separated, so ties may give fewer.
    """
    values, wrong = np.asarray(quality, dtype=np.float64), np.asarray(error, dtype=bool)
    if values.shape != wrong.shape or not len(values):
        raise ValueError("reliability needs a quality and an error flag for each pair")
    edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1], method="higher"))
    place = np.searchsorted(edges, values, side="right")
    parts = [wrong[place == number] for number in np.unique(place)]
    rate = np.array([part.mean() for part in parts])
    return Reliability(rate, *wilson(rate, np.array([len(part) for part in parts])))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[group]
