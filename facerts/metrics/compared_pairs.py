"""Scores of compared pairs, as error versus reject needs them: every pair of a set, or the pairs that a list names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.metrics.all_pairs import TAIL_MARGIN, all_pairs, resampled_thresholds
from facerts.metrics.reject import resampled_fmr_limits
from facerts.metrics.resample import ResamplingUnit, check_subjects, subject_counts
from facerts.metrics.verification import check_pairs

# After rejection the share of high scores differs from that of all pairs, so more of them are kept than in all_pairs.
TAIL_SHARE, MIN_TAIL, MAX_TAIL = 0.05, 200_000, 4_000_000

Floats = NDArray[np.float64]
# From false match rates, the number of replicates and the seed: each replicate's highest score that is rejected, by
# rate, and its weights of the genuine pairs.
Limits = Callable[[Sequence[float], int, int], Iterator[tuple[Sequence[float], NDArray[np.float32]]]]


@dataclass(frozen=True)
class Resamples:
    """Bootstrap replicates of compared pairs.

    Attributes:
        thresholds: ``(F, B)`` thresholds by false match rate and replicate.
        drawn: ``(B, U)`` how often each person was drawn, or each genuine pair if the people are unknown.
    """

    thresholds: Floats
    drawn: NDArray[np.float32]


@dataclass(frozen=True)
class ComparedPairs:
    """Scores of genuine pairs, and the highest ones of impostor pairs.

    Attributes:
        genuine: number of genuine pairs, G.
        impostors: number of impostor pairs.
        genuine_scores: ``(G,)``; pairs at or above a threshold match.
        genuine_pairs: ``(G, 2)`` their rows of images.
        tail: ``(K,)`` highest scores of impostor pairs, descending; all of them if the pairs are listed.
        tail_pairs: ``(K, 2)`` their rows of images.
        images: ``(M,)`` rows of the images that are compared.
        people: ``(N,)`` person of each image, numbered without gaps (−1 for an image that is not compared); None if
            unknown.
        accepted: number of impostor pairs at or above a threshold.
        limits: the bootstrap.
    """

    genuine: int
    impostors: int
    genuine_scores: NDArray[np.floating]
    genuine_pairs: NDArray[np.integer]
    tail: NDArray[np.floating]
    tail_pairs: NDArray[np.integer]
    images: NDArray[np.int64]
    people: NDArray[np.int64] | None
    accepted: Callable[[float], int]
    limits: Limits

    @property
    def unit(self) -> ResamplingUnit:
        """What the bootstrap resamples."""
        return "pairs" if self.people is None else "subjects"

    @property
    def genuine_units(self) -> NDArray[np.int64]:
        """``(G,)`` column of ``Resamples.drawn`` with the weight of each genuine pair."""
        return np.arange(self.genuine) if self.people is None else self.people[self.genuine_pairs[:, 0]]

    def threshold(self, fmr: float) -> float:
        """The lowest threshold at which at most ``fmr`` of the impostor pairs are accepted.

        Raises:
            ValueError: the rate is not between 0 and 1, no impostor pair may be accepted at it, or it needs more of
                the highest scores than are kept (5 % of more than 4 million pairs); replicates need a margin.
        """
        if not 0 < fmr < 1:
            raise ValueError(f"{fmr:g} is not a valid FMR; it must be between 0 and 1")
        if fmr * self.impostors < 1 - 1e-9:
            raise ValueError(
                f"FMR {fmr:g} needs at least {int(np.ceil(1 / fmr)):,} impostor pairs, and there are "
                f"{self.impostors:,}; choose a higher rate"
            )
        if len(self.tail) < min(self.impostors, TAIL_MARGIN * fmr * self.impostors):
            raise ValueError(
                f"FMR {fmr:g} needs the scores of more impostor pairs than the highest {len(self.tail):,} of "
                f"{self.impostors:,}, which are kept; choose a lower rate"
            )
        return _just_above(self.tail[int(np.floor(fmr * self.impostors + 1e-9))])

    def thresholds_left(self, fmrs: Sequence[float], kept: NDArray[np.bool_], left: int) -> list[float]:
        """Thresholds on a part of the impostor pairs.

        Args:
            fmrs: false match rates.
            kept: ``(K,)`` which pairs of the tail are left.
            left: number of impostor pairs that are left.

        Returns:
            A threshold for each FMR; NaN if no pair is left or it lies below the scores that are kept.
        """
        rows = np.flatnonzero(kept)
        allowed = [int(np.floor(fmr * left + 1e-9)) for fmr in fmrs]
        return [_just_above(self.tail[rows[n]]) if n < len(rows) else float("nan") for n in allowed]

    def ranked_impostors(self, quality: Floats) -> tuple[Floats, NDArray[np.int64]]:
        """Impostor pairs by the quality of their worse image, counted without enumerating them.

        Returns:
            Qualities ``(K,)``, descending, and the number of pairs ``(K,)`` up to each of them.
        """
        if self.people is None or len(self.tail) == self.impostors:
            ranks = np.sort(quality[self.tail_pairs].min(axis=1))[::-1]
            return ranks, np.arange(1, self.impostors + 1)
        best_first = self.images[np.argsort(-quality[self.images], kind="stable")]
        people = self.people[best_first]
        by_person = np.argsort(people, kind="stable")
        # An image forms a pair with each better image of another person.
        better_of_person = np.empty(len(people), dtype=np.int64)
        starts = np.searchsorted(people[by_person], people[by_person])
        better_of_person[by_person] = np.arange(len(people)) - starts
        return quality[best_first], np.cumsum(np.arange(len(people)) - better_of_person)

    def resamples(self, fmrs: Sequence[float], replicates: int, seed: int) -> Resamples:
        """Bootstrap over people, or over pairs if the people are unknown.

        The people that are drawn depend only on their number and the seed, and pairs only on their order in the list,
        so that replicates of several recognizers on the same pairs can be averaged and subtracted one by one.
        """
        limits: list[Sequence[float]] = []
        weights: list[NDArray[np.float32]] = []
        for of_replicate, genuine_weights in self.limits(fmrs, replicates, seed):
            limits.append(of_replicate)
            if self.people is None:
                weights.append(genuine_weights)
        if self.people is not None:
            weights = list(subject_counts(int(self.people.max()) + 1, replicates, seed))
        units = self.genuine if self.people is None else int(self.people.max()) + 1
        drawn = np.array(weights, dtype=np.float32).reshape(replicates, units)
        highest_rejected = np.array(limits, dtype=np.float64).reshape(replicates, len(fmrs)).T
        return Resamples(np.nextafter(highest_rejected, np.inf), drawn)


def compare_all(
    embedding: NDArray[np.floating],
    people: NDArray[np.integer],
    progress: Callable[[int], None] | None = None,
) -> ComparedPairs:
    """Compare every pair of images by the cosine.

    Args:
        embedding: ``(N, d)`` of unit length.
        people: ``(N,)`` person of each image.
        progress: called with the number of pairs compared since the last call.

    Raises:
        ValueError: as for ``all_pairs``.
    """
    sizes = np.unique(people, return_counts=True)[1].astype(np.int64)
    impostors = (int(sizes.sum()) ** 2 - int(np.sum(sizes**2))) // 2
    tail = int(min(max(MIN_TAIL, TAIL_SHARE * impostors), MAX_TAIL))
    every = all_pairs(embedding, people, tail=tail, progress=progress)

    def limits(
        fmrs: Sequence[float], replicates: int, seed: int
    ) -> Iterator[tuple[Sequence[float], NDArray[np.float32]]]:
        return resampled_thresholds(every, fmrs, replicates=replicates, seed=seed)

    return ComparedPairs(
        len(every.genuine),
        every.impostors,
        every.genuine,
        every.genuine_pairs,
        every.tail,
        every.tail_pairs,
        np.arange(len(every.subjects)),
        every.subjects,
        every.accepted,
        limits,
    )


def compare_listed(
    scores: ArrayLike,
    same: ArrayLike,
    pairs: NDArray[np.integer],
    people: NDArray[np.integer] | None,
) -> ComparedPairs:
    """The pairs that a benchmark lists.

    Args:
        scores: ``(P,)`` similarity.
        same: ``(P,) bool``, True for a genuine pair.
        pairs: ``(P, 2)`` rows of images.
        people: ``(N,)`` person of each image, to resample people; None to resample pairs.

    Raises:
        ValueError: shapes are wrong, a score is not finite, one class has no pair, or people contradict ``same``.
    """
    checked, flags = check_pairs(np.asarray(scores, dtype=np.float64), same)
    values = checked.astype(np.float64)
    if pairs.shape != (len(flags), 2):
        raise ValueError(f"pairs are {pairs.shape}, but there are {len(flags)} scores")
    images = np.unique(pairs).astype(np.int64)
    subjects, numbers = None, None
    if people is not None:
        subjects = np.asarray(people)[pairs]
        check_subjects(flags, subjects)
        numbers = np.full(len(people), -1, dtype=np.int64)
        numbers[images] = np.unique(np.asarray(people)[images], return_inverse=True)[1]

    def accepted(threshold: float) -> int:
        return int(np.sum(values[~flags] >= threshold))

    falling = np.flatnonzero(~flags)[np.argsort(-values[~flags], kind="stable")]
    return ComparedPairs(
        int(flags.sum()),
        len(falling),
        values[flags],
        pairs[flags],
        values[falling],
        pairs[falling],
        images,
        numbers,
        accepted,
        partial(_listed_limits, values, flags, subjects),
    )


def _listed_limits(
    scores: Floats,
    same: NDArray[np.bool_],
    subjects: NDArray[np.integer] | None,
    fmrs: Sequence[float],
    replicates: int,
    seed: int,
) -> Iterator[tuple[Sequence[float], NDArray[np.float32]]]:
    by_rate = [
        resampled_fmr_limits(scores, same, subjects, fmr, replicates=replicates, seed=seed) for fmr in fmrs
    ]
    for of_replicate in zip(*by_rate, strict=True):
        yield [limit for limit, _ in of_replicate], of_replicate[0][1]


def _just_above(score: np.floating) -> float:
    return float(np.nextafter(score, np.inf, dtype=score.dtype))
