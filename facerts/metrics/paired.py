"""Compare two models on the same pairs: is the difference more than chance?

Both are measured on the same bootstrap replicates, so what makes a pair hard for both cancels out; separate intervals
for each model say much less.

A method that was trained several times, with another seed each time, has a row of scores for each training run; its
metrics are then means over the runs. Their intervals still say only how the metrics of these runs vary with the people
or images that they are measured on; ``intervals.mean_interval`` says how they vary with the seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.metrics.intervals import Interval, percentile_interval
from facerts.metrics.pair_intervals import class_mean
from facerts.metrics.resample import ResamplingUnit, pair_weights
from facerts.metrics.verification import check_pairs, ten_fold_accuracy

Statistic = Callable[[NDArray[np.float32]], float]


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
        first: ``(P,)`` scores of one model, or ``(S, P)`` of S training runs.
        second: ``(P,)`` scores of the other, or of its runs.
        same: ``(P,) bool``.
        folds: ``(P,)`` folds for accuracy; each model has its own thresholds.
        far: false accept rate for TAR; each replicate has its own thresholds.
        subjects: ``(P, 2)`` subjects of each pair, to resample subjects; None to resample pairs.

    Returns:
        Differences under "accuracy", "auroc" and "tar_at_far".
    """
    measures = [
        _mean_over_runs([_measures(scores, same, folds, far) for scores in np.atleast_2d(side)])
        for side in (first, second)
    ]
    flags = np.asarray(same, dtype=bool)
    weights = pair_weights(flags, subjects, replicates=replicates, seed=seed)
    return _differences(measures, weights, flags, "pairs" if subjects is None else "subjects")


def compare_separations(
    first_faces: ArrayLike,
    first_others: ArrayLike,
    second_faces: ArrayLike,
    second_others: ArrayLike,
    *,
    tpr: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Difference]:
    """Differences in AUROC and TNR@TPR between two scores of the same faces and non-faces.

    Args:
        first_faces: ``(N,)`` the first score for the faces, or ``(S, N)`` that of S training runs.
        first_others: ``(M,)`` the first score for the non-faces, or ``(S, M)``.
        second_faces: the second score for the faces, in the same order.
        second_others: the second score for the non-faces, in the same order.
        tpr: true positive rate for TNR.

    Returns:
        Differences under "auroc" and "tnr_at_tpr".

    Raises:
        ValueError: the numbers of images differ.
    """
    one, other = (
        [np.atleast_2d(np.asarray(side, dtype=np.float64)) for side in sides]
        for sides in ((first_faces, first_others), (second_faces, second_others))
    )
    sizes = [side.shape[1] for side in one]
    if sizes != [side.shape[1] for side in other]:
        raise ValueError("paired scores must be of the same faces and the same non-faces")
    flags = np.repeat([True, False], sizes)
    measures = [
        _mean_over_runs(
            [_separation_measures(faces, others, tpr) for faces, others in zip(*sides, strict=True)]
        )
        for sides in (one, other)
    ]
    weights = pair_weights(flags, None, replicates=replicates, seed=seed)
    return _differences(measures, weights, flags, "pairs")


def _measures(scores: ArrayLike, same: ArrayLike, folds: ArrayLike, far: float) -> dict[str, Statistic]:
    values, flags = check_pairs(np.asarray(scores, dtype=np.float64), same)
    accuracy = ten_fold_accuracy(values, flags, folds)
    _, of_pair = np.unique(np.asarray(folds), return_inverse=True)
    right = ((values >= accuracy.thresholds[of_pair]) == flags).astype(np.float64)
    genuine, impostor_rows = values[flags], np.flatnonzero(~flags)[np.argsort(-values[~flags], kind="stable")]
    impostors = values[impostor_rows]

    def tar(weights: NDArray[np.float32]) -> float:
        running = np.cumsum(weights[impostor_rows], dtype=np.float64)
        place = int(np.searchsorted(running, far * running[-1] + 1e-9, side="right"))
        limit = impostors[place] if place < len(impostors) else -np.inf
        return float(np.average(genuine > limit, weights=weights[flags]))

    return {
        "accuracy": lambda weights: class_mean(right, flags, weights),
        "auroc": _auroc(values, flags),
        "tar_at_far": tar,
    }


def _separation_measures(
    faces: NDArray[np.float64], others: NDArray[np.float64], tpr: float
) -> dict[str, Statistic]:
    rising = np.argsort(faces, kind="stable")
    count = len(faces)

    def tnr(weights: NDArray[np.float32]) -> float:
        # The highest threshold with at least a share ``tpr`` of the faces at or above it.
        at_or_above = np.cumsum(weights[:count][rising][::-1], dtype=np.float64)
        place = int(np.searchsorted(at_or_above, tpr * at_or_above[-1] - 1e-6))
        return float(np.average(others < faces[rising[count - 1 - place]], weights=weights[count:]))

    values = np.concatenate([faces, others])
    return {"auroc": _auroc(values, np.arange(len(values)) < count), "tnr_at_tpr": tnr}


def _mean_over_runs(runs: Sequence[dict[str, Statistic]]) -> dict[str, Statistic]:
    """Statistics of a method from those of its training runs."""

    def mean_of(name: str) -> Statistic:
        return lambda weights: fmean(run[name](weights) for run in runs)

    return {name: mean_of(name) for name in runs[0]}


def _auroc(values: NDArray[np.floating], flags: NDArray[np.bool_]) -> Statistic:
    """AUROC as a function of weights; the rank of each positive among the negatives is computed once."""
    rising_rows = np.flatnonzero(~flags)[np.argsort(values[~flags], kind="stable")]
    lower, upper = (
        np.searchsorted(values[rising_rows], values[flags], side=side) for side in ("left", "right")
    )

    def auroc(weights: NDArray[np.float32]) -> float:
        below = np.concatenate([[0.0], np.cumsum(weights[rising_rows], dtype=np.float64)])
        ahead = (below[lower] + below[upper]) / (2 * below[-1])
        return float(np.average(ahead, weights=weights[flags]))

    return auroc


def _differences(
    measures: Sequence[dict[str, Statistic]],
    replicates: Iterable[NDArray[np.float32]],
    flags: NDArray[np.bool_],
    unit: ResamplingUnit,
) -> dict[str, Difference]:
    """First minus second, on the original pairs and on every replicate."""
    first, second = measures
    resampled: dict[str, list[float]] = {name: [] for name in first}
    for weights in replicates:
        if weights[flags].any() and weights[~flags].any():  # a replicate of a tiny set may lose a class
            for name, values in resampled.items():
                values.append(first[name](weights) - second[name](weights))
    whole = np.ones(len(flags), dtype=np.float32)
    return {
        name: Difference(
            first[name](whole) - second[name](whole),
            percentile_interval(np.array(values)),
            _p_value(np.array(values)),
            unit,
        )
        for name, values in resampled.items()
    }


def _p_value(differences: NDArray[np.float64]) -> float:
    replicates = len(differences)
    side = min(np.sum(differences <= 0), np.sum(differences >= 0))
    return float(min(1.0, 2 * (side + 1) / (replicates + 1)))
