"""Compare two models on the same pairs, or faces and non-faces: is the difference more than chance?

Both are measured on the same bootstrap replicates, so what makes a pair hard for both cancels out; separate intervals
for each model say much less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.metrics.intervals import Interval, ResamplingUnit, Weights, pair_weights, percentile_interval
from facerts.metrics.pair_intervals import class_mean
from facerts.metrics.verification import check_pairs, ten_fold_accuracy

Statistic = Callable[[Weights], float]


@dataclass(frozen=True)
class Difference:
    """A difference, first model minus second.

    Attributes:
        ci95: its 95% percentile bootstrap interval.
        p_value: two-sided p-value of no difference: twice the share of replicates on the other side of 0, at least
            2/(replicates + 1).
    """

    value: float
    ci95: Interval
    p_value: float
    unit: ResamplingUnit


def compare_scores(
    first: ArrayLike,
    second: ArrayLike,
    positive: ArrayLike,
    *,
    folds: ArrayLike | None = None,
    far: float | None = None,
    tpr: float | None = None,
    subjects: NDArray[np.integer] | None = None,
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Difference]:
    """Differences in "auroc" between two scores of the same pairs, or of the same faces and non-faces.

    Args:
        first: ``(P,)`` scores of one model.
        second: ``(P,)`` scores of the other.
        positive: ``(P,) bool``, True for genuine pairs, or for faces.
        folds: ``(P,)`` folds, to compare "accuracy" too; each model has its own thresholds.
        far: false accept rate, to compare "tar_at_far" too; each replicate has its own thresholds.
        tpr: true positive rate, to compare "tnr_at_tpr" too; likewise.
        subjects: ``(P, 2)`` subjects of each pair, to resample subjects; None to resample pairs.
    """
    flags = np.asarray(positive, dtype=bool)
    if not np.shape(first) == np.shape(second) == flags.shape:
        raise ValueError("paired scores must be of the same pairs, or of the same faces and the same non-faces")
    one, other = (_statistics(side, flags, folds, far, tpr) for side in (first, second))

    def difference(name: str, weights: Weights) -> float:
        return one[name](weights) - other[name](weights)

    resampled: dict[str, list[float]] = {name: [] for name in one}
    for weights in pair_weights(flags, subjects, replicates=replicates, seed=seed):
        if weights[flags].any() and weights[~flags].any():  # a replicate of a tiny set may lose a class
            for name, values in resampled.items():
                values.append(difference(name, weights))
    whole = np.ones(len(flags), dtype=np.float32)
    unit: ResamplingUnit = "pairs" if subjects is None else "subjects"
    return {
        name: Difference(
            difference(name, whole), percentile_interval(np.array(values)), _p_value(np.array(values)), unit
        )
        for name, values in resampled.items()
    }


def _statistics(
    scores: ArrayLike,
    positive: NDArray[np.bool_],
    folds: ArrayLike | None,
    far: float | None,
    tpr: float | None,
) -> dict[str, Statistic]:
    values, flags = check_pairs(np.asarray(scores, dtype=np.float64), positive)
    statistics = {"auroc": _auroc(values, flags)}
    if folds is not None:
        statistics["accuracy"] = _accuracy(values, flags, folds)
    if far is not None:
        statistics["tar_at_far"] = _tar_at_far(values, flags, far)
    if tpr is not None:
        # The same with both classes, and above and below, exchanged.
        statistics["tnr_at_tpr"] = _tar_at_far(-values, ~flags, 1 - tpr)
    return statistics


def _accuracy(values: NDArray[np.floating], flags: NDArray[np.bool_], folds: ArrayLike) -> Statistic:
    _, of_pair = np.unique(np.asarray(folds), return_inverse=True)
    thresholds = ten_fold_accuracy(values, flags, folds).thresholds
    right = ((values >= thresholds[of_pair]) == flags).astype(np.float64)
    return lambda weights: class_mean(right, flags, weights)


def _tar_at_far(values: NDArray[np.floating], flags: NDArray[np.bool_], far: float) -> Statistic:
    genuine, rows = values[flags], np.flatnonzero(~flags)[np.argsort(-values[~flags], kind="stable")]
    impostors = values[rows]

    def tar(weights: Weights) -> float:
        running = np.cumsum(weights[rows], dtype=np.float64)
        place = int(np.searchsorted(running, far * running[-1] + 1e-9, side="right"))
        limit = impostors[place] if place < len(impostors) else -np.inf
        return float(np.average(genuine > limit, weights=weights[flags]))

    return tar


def _auroc(values: NDArray[np.floating], flags: NDArray[np.bool_]) -> Statistic:
    """AUROC as a function of weights; the rank of each positive among the negatives is computed once."""
    rising_rows = np.flatnonzero(~flags)[np.argsort(values[~flags], kind="stable")]
    lower, upper = (np.searchsorted(values[rising_rows], values[flags], side=side) for side in ("left", "right"))

    def auroc(weights: Weights) -> float:
        below = np.concatenate([[0.0], np.cumsum(weights[rising_rows], dtype=np.float64)])
        ahead = (below[lower] + below[upper]) / (2 * below[-1])
        return float(np.average(ahead, weights=weights[flags]))

    return auroc


def _p_value(differences: NDArray[np.float64]) -> float:
    replicates = len(differences)
    side = min(np.sum(differences <= 0), np.sum(differences >= 0))
    return float(min(1.0, 2 * (side + 1) / (replicates + 1)))
