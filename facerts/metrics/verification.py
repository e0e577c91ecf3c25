"""Verification metrics over pairs: exact, from scores sorted once, without a grid of thresholds.

Conventions: a pair is accepted if its score is at or above the threshold. ``same`` is True for genuine pairs. Rates are
shares of their own class: FAR (= FMR) of the impostors, FRR (= FNMR) of the genuine pairs. Equal scores are accepted or
rejected together, so their order does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Pairs whose rows are gathered at a time: few enough to fit into the CPU cache, which is five times as fast.
CHUNK = 2048


def check_pairs(scores: ArrayLike, same: ArrayLike) -> tuple[NDArray[np.floating], Flags]:
    """Scores and flags as validated arrays; float32 stays float32, anything else becomes float64.

    Raises:
        ValueError: the lengths differ, a score is not finite, or one of the classes has no pair.
    """
    checked, flags = np.asarray(scores), np.asarray(same, dtype=bool)
    if checked.dtype != np.float32:
        checked = checked.astype(np.float64)
    if checked.ndim != 1 or checked.shape != flags.shape:
        raise ValueError(f"scores {checked.shape} and same {flags.shape} must be two vectors of the same length")
    if not np.isfinite(checked).all():
        raise ValueError(f"score {int(np.flatnonzero(~np.isfinite(checked))[0])} is not a finite number")
    if flags.all() or not flags.any():
        raise ValueError("verification needs both genuine and impostor pairs")
    return checked, flags


def pair_cosine(embedding: NDArray[np.floating], pairs: NDArray[np.integer]) -> Scores:
    """``(P,) float64`` cosine similarity of pairs, ``(P, 2)`` row numbers, of unit embeddings ``(N, d)``."""
    cosine = np.empty(len(pairs))
    for start in range(0, len(pairs), CHUNK):
        chunk = pairs[start : start + CHUNK]
        first, second = embedding[chunk[:, 0]].astype(np.float64), embedding[chunk[:, 1]].astype(np.float64)
        cosine[start : start + CHUNK] = np.einsum("pd,pd->p", first, second)
    return cosine


@dataclass(frozen=True)
class OperatingPoint:
    """TAR at the lowest threshold whose FAR does not exceed a target.

    Attributes:
        tar: share of genuine pairs accepted; FNMR is 1 − TAR.
        achieved_far: share of impostors accepted, at most the target.
        threshold: pairs at or above it are accepted; +∞ if no impostor may pass and no genuine pair beats the best one.
    """

    tar: float
    achieved_far: float
    threshold: float
    impostors: int


@dataclass(frozen=True)
class ROC:
    """Operating points from the highest threshold to the lowest; FNMR = 1 − TAR over FAR is the DET curve.

    Attributes:
        thresholds: ``(K,)`` descending; the first is +∞ (nothing accepted), then every distinct score.
        far: ``(K,)`` share of impostors accepted.
        tar: ``(K,)`` share of genuine pairs accepted.
    """

    thresholds: NDArray[np.floating]
    far: Scores
    tar: Scores
    genuine: int
    impostors: int

    def auroc(self) -> float:
        """Probability that a genuine pair scores above an impostor pair; ties count half."""
        return trapezoid(self.far, self.tar)

    def eer(self) -> float:
        """Equal error rate: where FAR and FRR cross, with linear interpolation."""
        gap = self.far - (1.0 - self.tar)  # increases from −1 to 1
        after = int(np.argmax(gap >= 0))
        before = after - 1
        share = -gap[before] / (gap[after] - gap[before])
        return float(self.far[before] + share * (self.far[after] - self.far[before]))

    def tar_at_far(self, target: float) -> OperatingPoint:
        """TAR at a FAR of at most ``target``; for targets below 1/impostors, no impostor is accepted."""
        index = int(np.searchsorted(self.far, target, side="right")) - 1
        return OperatingPoint(
            float(self.tar[index]), float(self.far[index]), float(self.thresholds[index]), self.impostors
        )

    def thinned(self, points: int) -> ROC:
        """About ``points`` of the operating points for plotting: both ends, evenly spaced in log FAR and in TAR.

        The remaining points are exact.
        """
        if len(self.far) <= points:
            return self
        grid = np.geomspace(1.0 / self.impostors, 1.0, points // 2)
        by_far = np.searchsorted(self.far, grid, side="right") - 1
        by_tar = np.searchsorted(self.tar, np.linspace(0.0, 1.0, points // 2))
        kept = np.unique(np.concatenate([[0, len(self.far) - 1], by_far, by_tar]))
        return ROC(self.thresholds[kept], self.far[kept], self.tar[kept], self.genuine, self.impostors)


def roc(scores: ArrayLike, same: ArrayLike) -> ROC:
    """All operating points of a set of scores, from a single sort.

    Args:
        scores: ``(P,)`` similarity.
        same: ``(P,) bool``.

    Examples:
        >>> curve = roc([0.9, 0.8, 0.4, 0.6, 0.3, 0.1], [True, True, True, False, False, False])
        >>> round(curve.auroc(), 4), round(curve.eer(), 4)
        (0.8889, 0.3333)
        >>> point = curve.tar_at_far(0.01)
        >>> round(point.tar, 4), point.achieved_far, point.impostors
        (0.6667, 0.0, 3)
    """
    values, flags = check_pairs(scores, same)
    ordered = np.sort(values)[::-1]
    last_of_ties = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
    distinct = ordered[last_of_ties]
    # In large sets few pairs are genuine: looking up their ranks is faster than sorting the flags along.
    place = len(distinct) - 1 - np.searchsorted(distinct[::-1], values[flags])
    genuine = np.cumsum(np.bincount(place, minlength=len(distinct)))
    impostors = last_of_ties + 1 - genuine
    return ROC(
        np.concatenate([np.array([np.inf], dtype=values.dtype), distinct]),
        np.concatenate([[0.0], impostors / impostors[-1]]),
        np.concatenate([[0.0], genuine / genuine[-1]]),
        int(genuine[-1]),
        int(impostors[-1]),
    )


def auroc(scores: ArrayLike, same: ArrayLike) -> float:
    """Probability that a genuine pair scores above an impostor pair; ties count half."""
    return roc(scores, same).auroc()


def trapezoid(x: Scores, y: Scores) -> float:
    """Area below a curve by the trapezoidal rule."""
    return float(np.sum((y[1:] + y[:-1]) / 2 * np.diff(x)))


def too_few(fmr: float, impostors: int) -> str:
    """Why so many impostor pairs cannot show a false match rate: not even one may match; empty where they can."""
    if fmr * impostors >= 1.0 - 1e-9:
        return ""
    return f"FMR {fmr:g} needs at least {math.ceil(1 / fmr - 1e-9):,} impostor pairs, and there are {impostors:,}"


def reachable(targets: Sequence[float], impostors: int) -> list[float]:
    """The false accept rates that a number of impostor pairs can resolve: at which at least one may pass."""
    return [target for target in targets if not too_few(target, impostors)]


def check_fmr(fmr: float, impostors: int) -> None:
    """Refuse a false match rate that is none, or for which there are too few impostor pairs, with a ``ValueError``."""
    if not 0 < fmr < 1:
        raise ValueError(f"{fmr:g} is not a valid FMR; it must be between 0 and 1")
    if reason := too_few(fmr, impostors):
        raise ValueError(f"{reason}; choose a higher rate, such as {10 ** math.ceil(-math.log10(max(impostors, 2))):g}")


@dataclass(frozen=True)
class FoldAccuracy:
    """Cross-validated accuracy.

    Attributes:
        value: mean over the folds.
        thresholds: ``(F,)`` threshold of each fold, chosen on the other folds.
    """

    value: float
    thresholds: Scores


def best_threshold(scores: ArrayLike, same: ArrayLike) -> float:
    """The threshold with the highest accuracy.

    Candidates lie halfway between neighboring distinct scores, and beyond both ends; of equally good ones the middle
    one is taken, so that the order of the pairs does not matter.
    """
    curve = roc(scores, same)
    right = np.rint(curve.tar * curve.genuine) - np.rint(curve.far * curve.impostors)
    best = np.flatnonzero(right == right.max())
    index = int(best[len(best) // 2])
    scored = curve.thresholds[1:]
    if index == 0:
        return float(np.nextafter(float(scored[0]), np.inf))
    if index == len(scored):
        return float(scored[-1])
    return (float(scored[index - 1]) + float(scored[index])) / 2.0


def ten_fold_accuracy(scores: ArrayLike, same: ArrayLike, folds: ArrayLike) -> FoldAccuracy:
    """Accuracy of each fold at the best threshold of the other folds (ten folds in LFW's protocol).

    Args:
        scores: ``(P,)`` similarity.
        same: ``(P,) bool``.
        folds: ``(P,)`` fold of each pair; at least two folds.
    """
    values, flags = check_pairs(np.asarray(scores, dtype=np.float64), same)
    fold = np.asarray(folds)
    names = np.unique(fold)
    if fold.shape != values.shape or len(names) < 2:
        raise ValueError("accuracy by folds needs a fold for every pair, and at least two folds")
    thresholds = np.array([best_threshold(values[fold != name], flags[fold != name]) for name in names])
    accuracies = [
        np.mean((values[fold == name] >= threshold) == flags[fold == name])
        for name, threshold in zip(names, thresholds, strict=True)
    ]
    return FoldAccuracy(float(np.mean(accuracies)), thresholds)
