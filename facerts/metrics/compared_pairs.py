"""Compared pairs of images, as thresholds and error versus reject need them: those of a list, or all of a set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.metrics.intervals import ResamplingUnit, check_subjects, pair_weights, subject_counts
from facerts.metrics.verification import check_pairs

Floats = NDArray[np.float64]


def count_pairs(people: ArrayLike) -> tuple[int, int]:
    """The number of genuine and of impostor pairs among all images, from the ``(N,)`` person of each."""
    sizes = np.unique(np.asarray(people), return_counts=True)[1].astype(np.int64)
    images, genuine = int(sizes.sum()), int(np.sum(sizes * (sizes - 1)) // 2)
    return genuine, images * (images - 1) // 2 - genuine


@dataclass(frozen=True, kw_only=True)
class ComparedPairs:
    """Scores of genuine pairs, and the highest ones of impostor pairs (the *tail*).

    ``compare_listed`` gives the pairs of a list, with all impostor pairs in the tail; ``all_pairs`` gives ``AllPairs``.

    Attributes:
        genuine: ``(G,)`` scores of the genuine pairs; pairs at or above a threshold match.
        genuine_pairs: ``(G, 2)`` their rows of images.
        tail: ``(K,)`` highest scores of impostor pairs, descending.
        tail_pairs: ``(K, 2)`` their rows of images.
        people: ``(N,)`` person of each image, numbered without gaps (−1 for an image that is not compared); None if
            unknown.
        tail_order: ``(K,)`` place of each pair of the tail among the impostor pairs of the list; None for all pairs.
    """

    genuine: NDArray[np.floating]
    genuine_pairs: NDArray[np.integer]
    tail: NDArray[np.floating]
    tail_pairs: NDArray[np.integer]
    impostors: int
    people: NDArray[np.int64] | None
    tail_order: NDArray[np.int64] | None = None

    @cached_property
    def images(self) -> NDArray[np.int64]:
        """``(M,)`` rows of the images that are compared."""
        if self.people is not None:
            return np.flatnonzero(self.people >= 0)
        return np.unique(np.concatenate([self.genuine_pairs, self.tail_pairs])).astype(np.int64)

    @property
    def unit(self) -> ResamplingUnit:
        """What the bootstrap resamples."""
        return "pairs" if self.people is None else "subjects"

    @property
    def genuine_units(self) -> NDArray[np.int64]:
        """``(G,)`` what ``resampled`` draws with each genuine pair: the number of its person, or its own."""
        return np.arange(len(self.genuine)) if self.people is None else self.people[self.genuine_pairs[:, 0]]

    def threshold(self, fmr: float) -> float:
        """The lowest threshold at which at most ``fmr`` of the impostor pairs are accepted."""
        allowed = int(np.floor(fmr * self.impostors + 1e-9))
        return _just_above(self.tail[allowed]) if allowed < self.impostors else float("-inf")

    def accepted(self, threshold: float) -> int:
        """Number of impostor pairs at or above a threshold."""
        return int(np.sum(self.tail >= threshold))

    def resampled(
        self, fmrs: Sequence[float], *, replicates: int, seed: int = 0
    ) -> Iterator[tuple[list[float], NDArray[np.float32]]]:
        """Bootstrap over people, or over pairs if the people are unknown.

        What is drawn depends only on the number of people, or of pairs in the list, and on the seed, so that replicates
        of several recognizers on the same pairs can be averaged and subtracted one by one.

        Yields:
            For each replicate the highest score that is rejected at each FMR, and how often each person, or each
            genuine pair if the people are unknown, was drawn: ``(U,)``; see ``genuine_units``.
        """
        number = len(self.genuine)
        if self.people is None:
            same = np.arange(number + self.impostors) < number
            for weights in pair_weights(same, None, replicates=replicates, seed=seed):
                yield self._rejected(fmrs, weights[number:][self.tail_order]), weights[:number]
            return
        first, second = (self.people[self.tail_pairs[:, side]] for side in (0, 1))
        for drawn in subject_counts(int(self.people.max()) + 1, replicates, seed):
            yield self._rejected(fmrs, drawn[first] * drawn[second]), drawn

    def _rejected(self, fmrs: Sequence[float], weights: NDArray[np.float32]) -> list[float]:
        """The highest score that is rejected at each FMR where the pairs of the tail, all of them, have weights."""
        running = np.cumsum(weights, dtype=np.float64)
        ranks = np.searchsorted(running, [fmr * running[-1] + 1e-9 for fmr in fmrs], side="right")
        return [float(self.tail[rank]) if rank < len(self.tail) else float("-inf") for rank in ranks]


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
    """
    values, flags = check_pairs(np.asarray(scores, dtype=np.float64), same)
    if pairs.shape != (len(flags), 2):
        raise ValueError(f"pairs are {pairs.shape}, but there are {len(flags)} scores")
    numbers = None
    if people is not None:
        check_subjects(flags, np.asarray(people)[pairs])
        images = np.unique(pairs)
        numbers = np.full(len(people), -1, dtype=np.int64)
        numbers[images] = np.unique(np.asarray(people)[images], return_inverse=True)[1]
    order = np.argsort(-values[~flags], kind="stable")
    return ComparedPairs(
        genuine=values[flags],
        genuine_pairs=pairs[flags],
        tail=values[~flags][order],
        tail_pairs=pairs[~flags][order],
        impostors=len(order),
        people=numbers,
        tail_order=order,
    )


def _just_above(score: np.floating) -> float:
    return float(np.nextafter(score, np.inf, dtype=score.dtype))
