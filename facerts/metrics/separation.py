"""Separating faces from non-faces by a score; faces are the positive class, and higher scores mean face.

TNR@TPR: the threshold is the highest that keeps at least the given share of the faces (a face at the threshold is
kept); TNR is the share of non-faces strictly below it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.metrics.intervals import Interval, resampled_rate_interval
from facerts.metrics.verification import auroc, check_pairs

TPRS = (0.90, 0.95)


@dataclass(frozen=True)
class Separation:
    """How well a score separates faces from non-faces.

    Attributes:
        auroc: ties count half.
        aupr: average precision with faces positive.
    """

    auroc: float
    aupr: float
    tnr_at_tpr: dict[float, float]


def separation(faces: ArrayLike, others: ArrayLike) -> Separation:
    """Compute all measures of separation of ``(N,)`` scores of faces from ``(M,)`` scores of non-faces.

    Examples:
        >>> found = separation(faces=[0.9, 0.8, 0.7, 0.6], others=[0.65, 0.2, 0.1])
        >>> round(found.auroc, 4), round(found.tnr_at_tpr[0.95], 4)
        (0.9167, 0.6667)
    """
    positive, negative = np.asarray(faces, dtype=np.float64), np.asarray(others, dtype=np.float64)
    scores = np.concatenate([positive, negative])
    flags = np.repeat([True, False], [len(positive), len(negative)])
    check_pairs(scores, flags)
    return Separation(
        auroc(scores, flags),
        average_precision(scores, flags),
        {tpr: tnr_at_tpr(positive, negative, tpr) for tpr in TPRS},
    )


def tnr_at_tpr(faces: ArrayLike, others: ArrayLike, tpr: float) -> float:
    """Share of non-faces below the highest threshold that keeps at least ``tpr`` of the faces."""
    threshold = keep_threshold(faces, tpr)
    return float(np.mean(np.asarray(others, dtype=np.float64) < threshold))


def keep_threshold(faces: ArrayLike, share: float) -> float:
    """The highest threshold with at least ``share`` of the faces at or above it."""
    ordered: NDArray[np.float64] = np.sort(np.asarray(faces, dtype=np.float64))
    kept = int(np.ceil(share * len(ordered) - 1e-9))
    return float(ordered[len(ordered) - max(kept, 1)])


def tnr_interval(faces: ArrayLike, others: ArrayLike, tpr: float, *, replicates: int = 2000, seed: int = 0) -> Interval:
    """95% bootstrap interval of TNR@TPR over images, without actually resampling images.

    The threshold of a replicate is one of its order statistics: the face of rank ⌈N·b⌉, where b has the Beta
    distribution of that order statistic of N uniform draws. Given the threshold, the number of non-faces below it is
    binomial. At 0 and 1 the interval extends to 3 / M (``resampled_rate_interval``), M non-faces.
    """
    random = np.random.default_rng(seed)
    positive = np.sort(np.asarray(faces, dtype=np.float64))
    negative = np.sort(np.asarray(others, dtype=np.float64))
    count = len(positive)
    rank = count - max(int(np.ceil(tpr * count - 1e-9)), 1) + 1
    ranks = np.ceil(count * random.beta(rank, count - rank + 1, replicates)).astype(int)
    thresholds = positive[np.clip(ranks, 1, count) - 1]
    below = np.searchsorted(negative, thresholds, side="left") / len(negative)
    drawn = random.binomial(len(negative), below) / len(negative)
    return resampled_rate_interval(drawn, tnr_at_tpr(positive, negative, tpr), len(negative))


def average_precision(scores: ArrayLike, positive: ArrayLike) -> float:
    """Σ (recall step) × precision over the distinct scores, highest first: scikit-learn's average precision."""
    values, flags = check_pairs(scores, positive)
    order = np.argsort(-values, kind="stable")
    values, flags = values[order], flags[order]
    last_of_ties = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)
    hits = np.cumsum(flags)[last_of_ties]
    steps = np.diff(np.concatenate([[0], hits])) / hits[-1]
    return float(np.sum(steps * hits / (last_of_ties + 1)))
