"""Two models on the same pairs: is the difference more than chance?

Both are measured in the same replicates of the bootstrap, so what makes a pair hard for both cancels out; intervals
of the two by themselves say much less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.metrics.intervals import Interval, percentile_interval
from facerts.metrics.pair_intervals import class_mean
from facerts.metrics.resample import Unit, pair_weights
from facerts.metrics.verification import check_pairs, ten_fold_accuracy

Statistic = Callable[[NDArray[np.float32]], float]


@dataclass(frozen=True)
class Difference:
    """First model minus second.

    Attributes:
        value: of the difference.
        ci95: percentile bootstrap.
        p_value: two-sided, of no difference: twice the share of replicates on the other side of 0, never below
            2/(replicates + 1).
        unit: what was drawn with replacement.
    """

    value: float
    ci95: Interval
    p_value: float
    unit: Unit


def compare_pairs(
    first: ArrayLike,
    second: ArrayLike,
    same: ArrayLike,
    folds: ArrayLike,
    *,
    far: float = 1e-3,
    subjects: NDArray[np.integer] | None = None,
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Difference]:
    """Differences in accuracy, AUROC and TAR at a FAR between two models' scores of the same pairs.

    Args:
        first: ``(P,)`` scores of one model.
        second: ``(P,)`` scores of the other.
        same: ``(P,) bool``.
        folds: ``(P,)`` for accuracy; thresholds are each model's own.
        far: of TAR at FAR; thresholds are each replicate's own.
        subjects: ``(P, 2)`` people of each pair, which are drawn then; None to draw pairs.
        replicates: of the bootstrap.
        seed: of the drawing.

    Returns:
        By "accuracy", "auroc" and "tar_at_far".
    """
    measures = [_measures(scores, same, folds, far) for scores in (first, second)]
    flags = np.asarray(same, dtype=bool)
    whole = np.ones(len(flags), dtype=np.float32)
    drawn: dict[str, list[float]] = {name: [] for name in measures[0]}
    for weights in pair_weights(flags, subjects, replicates=replicates, seed=seed):
        if weights[flags].any() and weights[~flags].any():  # a tiny set may lose a class
            for name, values in drawn.items():
                values.append(measures[0][name](weights) - measures[1][name](weights))
    unit: Unit = "pairs" if subjects is None else "subjects"
    return {
        name: Difference(
            measures[0][name](whole) - measures[1][name](whole),
            percentile_interval(np.array(values)),
            _p_value(np.array(values)),
            unit,
        )
        for name, values in drawn.items()
    }


def mcnemar(first_right: ArrayLike, second_right: ArrayLike) -> float:
    """Exact two-sided p-value of McNemar's test: of the pairs that one model alone decides rightly, is half each one's?

    Pairs count as independent here; where people repeat, ``compare_pairs`` is the more honest test.
    """
    one, other = np.asarray(first_right, dtype=bool), np.asarray(second_right, dtype=bool)
    wins, losses = int(np.sum(one & ~other)), int(np.sum(~one & other))
    total, fewer = wins + losses, min(wins, losses)
    ways, tail = 1, 1
    for k in range(fewer):
        ways = ways * (total - k) // (k + 1)
        tail += ways
    return float(min(1.0, 2 * tail / 2**total))


def _measures(scores: ArrayLike, same: ArrayLike, folds: ArrayLike, far: float) -> dict[str, Statistic]:
    values, flags = check_pairs(np.asarray(scores, dtype=np.float64), same)
    accuracy = ten_fold_accuracy(values, flags, folds)
    _, of_pair = np.unique(np.asarray(folds), return_inverse=True)
    right = ((values >= accuracy.thresholds[of_pair]) == flags).astype(np.float64)
    genuine_rows = np.flatnonzero(flags)[np.argsort(values[flags], kind="stable")]
    impostor_rows = np.flatnonzero(~flags)[np.argsort(-values[~flags], kind="stable")]
    genuine, impostors = values[genuine_rows], values[impostor_rows]
    rising = impostors[::-1]
    lower, upper = (np.searchsorted(rising, genuine, side=side) for side in ("left", "right"))

    def auroc(weights: NDArray[np.float32]) -> float:
        below = np.concatenate([[0.0], np.cumsum(weights[impostor_rows][::-1], dtype=np.float64)])
        return float(
            np.average((below[lower] + below[upper]) / (2 * below[-1]), weights=weights[genuine_rows])
        )

    def tar(weights: NDArray[np.float32]) -> float:
        running = np.cumsum(weights[impostor_rows], dtype=np.float64)
        place = int(np.searchsorted(running, far * running[-1] + 1e-9, side="right"))
        limit = impostors[place] if place < len(impostors) else -np.inf
        return float(np.average(genuine > limit, weights=weights[genuine_rows]))

    return {
        "accuracy": lambda weights: class_mean(right, flags, weights),
        "auroc": auroc,
        "tar_at_far": tar,
    }


def _p_value(differences: NDArray[np.float64]) -> float:
    replicates = len(differences)
    side = min(np.sum(differences <= 0), np.sum(differences >= 0))
    return float(min(1.0, 2 * (side + 1) / (replicates + 1)))
