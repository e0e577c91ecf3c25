"""Verification metrics over pairs: exact, from scores sorted once; no grid of thresholds.

Conventions: a pair is accepted where its score is at or above the threshold. ``same`` is True for genuine pairs.
Rates are shares of their own class: FAR (= FMR) of the impostors, FRR (= FNMR) of the genuine pairs. Equal
scores are accepted or rejected together, so no order among them can matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]


def check_pairs(scores: ArrayLike, same: ArrayLike) -> tuple[Scores, Flags]:
    """Scores and flags as arrays, checked.

    Raises:
        ValueError: lengths differ, a score is not finite, or one of the classes has no pair.
    """
    checked, flags = np.asarray(scores, dtype=np.float64), np.asarray(same, dtype=bool)
    if checked.ndim != 1 or checked.shape != flags.shape:
        raise ValueError(f"scores {checked.shape} and same {flags.shape} must be two vectors of one length")
    if not np.isfinite(checked).all():
        raise ValueError(f"score {int(np.flatnonzero(~np.isfinite(checked))[0])} is not a finite number")
    if flags.all() or not flags.any():
        raise ValueError("verification needs both genuine and impostor pairs")
    return checked, flags


def pair_cosine(embedding: NDArray[np.floating], pairs: NDArray[np.integer]) -> Scores:
    """Cosine of each pair of unit embeddings.

    Args:
        embedding: ``(N, d)``, rows of unit length.
        pairs: ``(P, 2)`` row numbers.

    Returns:
        ``(P,) float64``.
    """
    cosine = np.empty(len(pairs))
    for start in range(0, len(pairs), 65536):  # bounds the memory of the gathered rows
        chunk = pairs[start : start + 65536]
        first, second = embedding[chunk[:, 0]].astype(np.float64), embedding[chunk[:, 1]].astype(np.float64)
        cosine[start : start + 65536] = np.einsum("pd,pd->p", first, second)
    return cosine


@dataclass(frozen=True)
class ROC:
    """Operating points from the strictest threshold to the laxest.

    Attributes:
        thresholds: ``(K,)`` falling; the first is +∞ (nothing accepted), then every distinct score.
        far: ``(K,)`` share of impostors accepted.
        tar: ``(K,)`` share of genuine pairs accepted.
    """

    thresholds: Scores
    far: Scores
    tar: Scores


def roc(scores: ArrayLike, same: ArrayLike) -> ROC:
    """Every operating point that the scores allow."""
    values, flags = check_pairs(scores, same)
    order = np.argsort(-values, kind="stable")
    values, flags = values[order], flags[order]
    last_of_ties = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)
    genuine = np.cumsum(flags)[last_of_ties]
    impostors = last_of_ties + 1 - genuine
    return ROC(
        np.concatenate([[np.inf], values[last_of_ties]]),
        np.concatenate([[0.0], impostors / impostors[-1]]),
        np.concatenate([[0.0], genuine / genuine[-1]]),
    )


def auroc(scores: ArrayLike, same: ArrayLike) -> float:
    """Probability that a genuine pair scores above an impostor pair; ties count half."""
    curve = roc(scores, same)
    return trapezoid(curve.far, curve.tar)


def trapezoid(x: Scores, y: Scores) -> float:
    """Area below the points joined by straight lines."""
    return float(np.sum((y[1:] + y[:-1]) / 2 * np.diff(x)))


def eer(scores: ArrayLike, same: ArrayLike) -> float:
    """Equal error rate: where FAR and FRR cross, the ROC's points joined by straight lines."""
    curve = roc(scores, same)
    gap = curve.far - (1.0 - curve.tar)  # rises from −1 to 1
    after = int(np.argmax(gap >= 0))
    before = after - 1
    share = -gap[before] / (gap[after] - gap[before])
    return float(curve.far[before] + share * (curve.far[after] - curve.far[before]))


@dataclass(frozen=True)
class OperatingPoint:
    """TAR at the laxest threshold whose FAR does not exceed a target.

    Attributes:
        tar: share of genuine pairs accepted.
        achieved_far: share of impostors accepted, at most the target.
        threshold: accept at or above; +∞ where even the best impostor may not pass and no genuine pair beats it.
        impostors: how many the rate rests on.
    """

    tar: float
    achieved_far: float
    threshold: float
    impostors: int


def tar_at_far(scores: ArrayLike, same: ArrayLike, target: float) -> OperatingPoint:
    """TAR at a FAR of at most ``target``; below 1/impostors no impostor at all is accepted."""
    curve = roc(scores, same)
    index = int(np.searchsorted(curve.far, target, side="right")) - 1
    impostors = int(np.sum(~np.asarray(same, dtype=bool)))
    return OperatingPoint(
        float(curve.tar[index]), float(curve.far[index]), float(curve.thresholds[index]), impostors
    )


def fmr_threshold(impostor_scores: ArrayLike, fmr: float) -> float:
    """The smallest threshold at which at most ``fmr`` of the impostors are accepted.

    It lies just above the first impostor score that must not pass, so that every genuine pair that beats that
    impostor is accepted.
    """
    ordered = np.sort(np.asarray(impostor_scores, dtype=np.float64))[::-1]
    if not len(ordered):
        raise ValueError("a threshold at a false match rate needs impostor pairs")
    allowed = int(np.floor(fmr * len(ordered) + 1e-9))
    return float(np.nextafter(ordered[allowed], np.inf)) if allowed < len(ordered) else float("-inf")


@dataclass(frozen=True)
class FoldAccuracy:
    """Accuracy by folds.

    Attributes:
        value: mean over the folds.
        fold_std: standard deviation over the folds (divisor: the number of folds).
        folds: ``(F,)`` accuracy of each.
        thresholds: ``(F,)`` chosen on the other folds.
    """

    value: float
    fold_std: float
    folds: Scores
    thresholds: Scores


def best_threshold(scores: ArrayLike, same: ArrayLike) -> float:
    """The threshold that decides most pairs rightly.

    Candidates lie half-way between neighbouring distinct scores, and beyond both ends; of equally good ones the
    middle one is taken, so that reversing the order of pairs changes nothing.
    """
    curve = roc(scores, same)
    flags = np.asarray(same, dtype=bool)
    genuine, impostors = int(flags.sum()), int((~flags).sum())
    right = np.rint(curve.tar * genuine) + (impostors - np.rint(curve.far * impostors))
    best = np.flatnonzero(right == right.max())
    index = int(best[len(best) // 2])
    scored = curve.thresholds[1:]
    if index == 0:
        return float(np.nextafter(scored[0], np.inf))
    if index == len(scored):
        return float(scored[-1])
    return float((scored[index - 1] + scored[index]) / 2.0)


def ten_fold_accuracy(scores: ArrayLike, same: ArrayLike, folds: ArrayLike) -> FoldAccuracy:
    """Accuracy of each fold at the threshold that is best on the others (ten folds in LFW's protocol).

    Args:
        scores: ``(P,)``.
        same: ``(P,) bool``.
        folds: ``(P,)`` integers; any number of folds from two on.

    Raises:
        ValueError: as ``check_pairs``, or there is only one fold.
    """
    values, flags = check_pairs(scores, same)
    fold = np.asarray(folds)
    names = np.unique(fold)
    if fold.shape != values.shape or len(names) < 2:
        raise ValueError("accuracy by folds needs a fold for every pair, and at least two folds")
    thresholds = np.array([best_threshold(values[fold != name], flags[fold != name]) for name in names])
    accuracies = np.array(
        [
            np.mean((values[fold == name] >= threshold) == flags[fold == name])
            for name, threshold in zip(names, thresholds, strict=True)
        ]
    )
    return FoldAccuracy(float(accuracies.mean()), float(accuracies.std()), accuracies, thresholds)
