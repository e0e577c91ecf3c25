"""Intervals of verification metrics, for thousands of pairs or tens of millions.

A bootstrap replicate (see ``intervals``) is a weighted ROC. Scores are put into bins that end at impostor scores: each
of the highest thousand has its own bin, and below that a bin has at most 0.2% of the impostors above it. So a
replicate takes one pass over the impostors, or none if pairs are resampled, and its false accept rates have a relative
error of at most 0.2%; with up to a thousand distinct impostor scores they are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.metrics.intervals import (
    Interval,
    ResamplingUnit,
    check_subjects,
    pair_weights,
    resampled_rate_interval,
    subject_counts,
)
from facerts.metrics.verification import ROC, check_pairs, roc

REPLICATES = 1000
# A replicate over subjects takes a pass over all pairs, so fewer are computed for large sets.
REPLICATES_OF_MANY, MANY = 200, 1_000_000
OWN_BIN, RATIO = 1000, 1.002
THREADS = 4


@dataclass(frozen=True)
class PairIntervals:
    """95% bootstrap intervals of verification metrics."""

    unit: ResamplingUnit
    auroc: Interval
    eer: Interval
    tar_at_far: dict[float, Interval]


def verification_intervals(
    scores: ArrayLike,
    same: ArrayLike,
    fars: Sequence[float],
    *,
    subjects: NDArray[np.integer] | None = None,
    replicates: int | None = None,
    seed: int = 0,
) -> PairIntervals:
    """Percentile bootstrap intervals of AUROC, EER and TAR at each FAR.

    At 0 and 1 they extend to 3 / n (``resampled_rate_interval``), n the people with genuine pairs, or the genuine pairs
    if those are resampled; of AUROC and EER at most the impostor pairs.

    Args:
        scores: ``(P,)``.
        same: ``(P,) bool``.
        subjects: ``(P, 2)`` subjects of each pair, to resample subjects; None to resample pairs.
        replicates: number of replicates; by default 1,000, or 200 for more than a million pairs.
    """
    values, flags = check_pairs(scores, same)
    count = replicates or (REPLICATES if len(values) <= MANY else REPLICATES_OF_MANY)
    curves = _resampled(values, flags, subjects, count, seed)

    def measures(curve: ROC) -> list[float]:
        return [curve.auroc(), curve.eer(), *(curve.tar_at_far(far).tar for far in fars)]

    whole = roc(values, flags)
    genuine = whole.genuine if subjects is None else len(np.unique(np.asarray(subjects)[flags]))
    both = min(genuine, whole.impostors)
    drawn = np.array([measures(curve) for curve in curves]).reshape(-1, 2 + len(fars)).T
    units = [both, both, *[genuine] * len(fars)]
    auroc, eer, *tars = map(resampled_rate_interval, drawn, measures(whole), units)
    return PairIntervals("pairs" if subjects is None else "subjects", auroc, eer, dict(zip(fars, tars, strict=True)))


def share_interval(
    right: ArrayLike,
    same: ArrayLike,
    *,
    subjects: NDArray[np.integer] | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Interval:
    """Interval of the share of pairs decided correctly, keeping the proportion of genuine and impostor pairs.

    At 0 and 1 it extends to 3 / n (``resampled_rate_interval``), n people, or pairs if those are resampled.
    """
    correct, flags = np.asarray(right, dtype=np.float32), np.asarray(same, dtype=bool)
    values = [
        class_mean(correct, flags, weights)
        for weights in pair_weights(flags, subjects, replicates=replicates, seed=seed)
        # A tiny list may lose all pairs of a kind in a replicate.
        if all(weights[rows].any() for rows in (flags, ~flags) if rows.any())
    ]
    units = len(flags) if subjects is None else len(np.unique(subjects))
    return resampled_rate_interval(np.array(values), float(np.mean(correct, dtype=np.float64)), units)


def class_mean(values: NDArray[np.floating], same: NDArray[np.bool_], weights: NDArray[np.float32]) -> float:
    """Weighted mean within each class, averaged over classes by their number of pairs."""
    parts = [
        np.mean(rows) * np.average(values[rows], weights=weights[rows]) for rows in (same, ~same) if weights[rows].any()
    ]
    return float(np.sum(parts))


def _resampled(
    values: NDArray[np.floating],
    flags: NDArray[np.bool_],
    subjects: NDArray[np.integer] | None,
    replicates: int,
    seed: int,
) -> Iterator[ROC]:
    genuine_order, impostor_order = (
        rows[np.argsort(-values[rows], kind="stable")] for rows in (np.flatnonzero(flags), np.flatnonzero(~flags))
    )
    genuine, impostors = values[genuine_order], values[impostor_order]
    starts = _bin_starts(impostors)
    # A bin ends at its lowest impostor score; genuine pairs lie above that score, at it, or below.
    ends = impostors[np.append(starts[1:], len(impostors)) - 1]
    above = len(genuine) - np.searchsorted(genuine[::-1], ends, side="right")
    at_or_above = len(genuine) - np.searchsorted(genuine[::-1], ends, side="left")
    places = np.stack([above, at_or_above], axis=1).reshape(-1)
    if subjects is None:
        random = np.random.default_rng(seed)
        impostor_share = np.diff(np.append(starts, len(impostors))) / len(impostors)
        genuine_share = np.diff(places, prepend=0, append=len(genuine)) / len(genuine)
        for _ in range(replicates):
            resampled = (
                random.multinomial(len(impostors), impostor_share),
                random.multinomial(len(genuine), genuine_share),
            )
            yield _curve(*(np.cumsum(counts, dtype=np.float64) for counts in resampled))
        return
    first, second, people = check_subjects(flags, subjects)
    of_genuine = first[genuine_order]
    of_impostors = [people_of[impostor_order].astype(np.intp) for people_of in (first, second)]
    del genuine_order, impostor_order, first, second

    def weigh(counts: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        weights = counts[of_impostors[0]]
        weights *= counts[of_impostors[1]]
        accepted = np.cumsum(np.add.reduceat(weights, starts), dtype=np.float64)
        running = np.concatenate([[0.0], np.cumsum(counts[of_genuine], dtype=np.float64)])
        return accepted, np.append(running[places], running[-1])

    with ThreadPoolExecutor(THREADS) as pool:
        for accepted, running in pool.map(weigh, subject_counts(people, replicates, seed)):
            if accepted[-1] > 0 and running[-1] > 0:  # a replicate of a tiny set may lose a class
                yield _curve(accepted, running)


def _bin_starts(impostors: NDArray[np.floating]) -> NDArray[np.int64]:
    """First rank of each bin in descending scores; ties are never separated."""
    count = len(impostors)
    ranks = np.arange(min(count, OWN_BIN), dtype=np.int64)
    if count > OWN_BIN:
        steps = int(np.ceil(np.log(count / OWN_BIN) / np.log(RATIO)))
        ranks = np.concatenate([ranks, np.geomspace(OWN_BIN, count, steps + 1).astype(np.int64)])
        ranks = np.unique(ranks[ranks < count])
    # A rank inside a tie moves to the tie's first rank.
    return np.unique(count - np.searchsorted(impostors[::-1], impostors[ranks], side="right"))


def _curve(accepted: NDArray[np.float64], running: NDArray[np.float64]) -> ROC:
    """A ROC from cumulative weights at the ends of K bins.

    ``accepted`` ``(K,)`` is that of the impostors down to each end; ``running`` ``(2K + 1,)`` that of the genuine pairs
    above each end and at or above it, in turn, and then the total.
    """
    impostors, genuine = float(accepted[-1]), float(running[-1])
    far = np.repeat(accepted / impostors, 2)
    # Genuine pairs above a bin's end come before the bin's impostors, those at its end with them.
    far[0::2] = np.concatenate([[0.0], far[1:-1:2]])
    tar = running[:-1] / genuine
    far, tar = np.concatenate([[0.0], far, [1.0]]), np.concatenate([[0.0], tar, [1.0]])
    return ROC(np.full(len(far), np.nan), far, tar, round(genuine), round(impostors))
