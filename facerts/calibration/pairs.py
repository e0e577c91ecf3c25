"""The pairs of images that match thresholds are chosen on: the pairs of a benchmark, or all pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from facerts.metrics.all_pairs import TAIL_MARGIN, AllPairs, resampled_thresholds
from facerts.metrics.reject import resampled_fmr_limits
from facerts.metrics.verification import fmr_threshold

REPLICATES = 300

Replicates = Iterator[tuple[Sequence[float], NDArray[np.float32]]]


class Pairs(Protocol):
    """Pairs of N images: all genuine pairs, and as much of the impostor pairs as thresholds need.

    Attributes:
        genuine: ``(G,)`` cosine similarities of the genuine pairs.
        genuine_pairs: ``(G, 2)`` indices of their images.
        people: ``(G,)`` the person of each genuine pair; None if unknown.
        impostors: number of impostor pairs.
    """

    @property
    def genuine(self) -> NDArray[np.floating]: ...
    @property
    def genuine_pairs(self) -> NDArray[np.integer]: ...
    @property
    def people(self) -> NDArray[np.int64] | None: ...
    @property
    def impostors(self) -> int: ...

    def threshold(self, fmr: float) -> float:
        """The smallest threshold at which at most ``fmr`` of the impostors are accepted."""
        ...

    def accepted(self, threshold: float) -> int:
        """The number of impostor pairs at or above a threshold."""
        ...

    def replicates(self, fmrs: Sequence[float]) -> Replicates:
        """For each bootstrap replicate: the highest rejected similarity at each FMR, and ``(G,)`` weights."""
        ...


@dataclass(frozen=True)
class ListedPairs:
    """The pairs of a benchmark; see ``Pairs``.

    Attributes:
        scores: ``(P,) float64`` cosine similarities.
        same: ``(P,) bool`` whether a pair is genuine.
        pairs: ``(P, 2)`` indices of the images.
        subjects: ``(P, 2)`` the people of each pair, to bootstrap over people; None to bootstrap over pairs.
    """

    scores: NDArray[np.float64]
    same: NDArray[np.bool_]
    pairs: NDArray[np.int64]
    subjects: NDArray[np.int64] | None

    @property
    def genuine(self) -> NDArray[np.float64]:
        return self.scores[self.same]

    @property
    def genuine_pairs(self) -> NDArray[np.int64]:
        return self.pairs[self.same]

    @property
    def people(self) -> NDArray[np.int64] | None:
        return None if self.subjects is None else self.subjects[self.same, 0]

    @property
    def impostors(self) -> int:
        return int((~self.same).sum())

    def threshold(self, fmr: float) -> float:
        return fmr_threshold(self.scores[~self.same], fmr)

    def accepted(self, threshold: float) -> int:
        return int((self.scores[~self.same] >= threshold).sum())

    def replicates(self, fmrs: Sequence[float]) -> Replicates:
        # The same seed gives the same weights for every rate.
        per_rate = (
            resampled_fmr_limits(self.scores, self.same, self.subjects, fmr, replicates=REPLICATES)
            for fmr in fmrs
        )
        for at_rates in zip(*per_rate, strict=True):
            yield [limit for limit, _ in at_rates], at_rates[0][1]


@dataclass(frozen=True)
class EveryPair:
    """All pairs of a set of images; see ``Pairs``."""

    every: AllPairs

    @property
    def genuine(self) -> NDArray[np.float32]:
        return self.every.genuine

    @property
    def genuine_pairs(self) -> NDArray[np.int32]:
        return self.every.genuine_pairs

    @property
    def people(self) -> NDArray[np.int64]:
        return self.every.subjects[self.every.genuine_pairs[:, 0]]

    @property
    def impostors(self) -> int:
        return self.every.impostors

    def threshold(self, fmr: float) -> float:
        return self.every.threshold(fmr)

    def accepted(self, threshold: float) -> int:
        return self.every.accepted(threshold)

    def replicates(self, fmrs: Sequence[float]) -> Replicates:
        # Below the tail there are so many impostor pairs that the threshold hardly varies, so it stays fixed.
        max_fmr = len(self.every.tail) / (TAIL_MARGIN * self.impostors)
        resampled = [fmr for fmr in fmrs if fmr <= max_fmr]
        fixed = [np.nextafter(self.threshold(fmr), -np.inf) for fmr in fmrs]
        for limits, weights in resampled_thresholds(self.every, resampled, replicates=REPLICATES):
            varying = dict(zip(resampled, limits, strict=True))
            yield [varying.get(fmr, limit) for fmr, limit in zip(fmrs, fixed, strict=True)], weights
