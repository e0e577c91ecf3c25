"""Pairs of pictures that match thresholds are chosen on: those of a list, or every pair there is."""

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
    """Pairs of N pictures: the genuine ones by themselves, of the impostors what thresholds need.

    Attributes:
        genuine: ``(G,)`` cosines of the genuine pairs.
        genuine_pairs: ``(G, 2)`` rows of their pictures.
        people: ``(G,)`` whose they are; None where that is not known.
        impostors: how many impostor pairs there are.
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
        """How many impostor pairs are at or above a threshold."""
        ...

    def replicates(self, fmrs: Sequence[float]) -> Replicates:
        """Of the bootstrap: the highest similarity that is not accepted at each FMR, and ``(G,)`` weights."""
        ...


@dataclass(frozen=True)
class ListedPairs:
    """The pairs that a benchmark lists; see ``Pairs``.

    Attributes:
        scores: ``(P,) float64``.
        same: ``(P,) bool``.
        pairs: ``(P, 2)`` rows of pictures.
        subjects: ``(P, 2)`` their people, who are drawn then; None to draw pairs.
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
        # One seed: the weights are the same for every rate.
        drawn = (
            resampled_fmr_limits(self.scores, self.same, self.subjects, fmr, replicates=REPLICATES)
            for fmr in fmrs
        )
        for at_rates in zip(*drawn, strict=True):
            yield [limit for limit, _ in at_rates], at_rates[0][1]


@dataclass(frozen=True)
class EveryPair:
    """Every pair of a set of pictures; see ``Pairs``."""

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
        # Below the tail there are so many impostors that chance hardly moves the threshold: there it stays.
        room = len(self.every.tail) / (TAIL_MARGIN * self.impostors)
        inside = [fmr for fmr in fmrs if fmr <= room]
        fixed = [np.nextafter(self.threshold(fmr), -np.inf) for fmr in fmrs]
        for drawn, weights in resampled_thresholds(self.every, inside, replicates=REPLICATES):
            at = dict(zip(inside, drawn, strict=True))
            yield [at.get(fmr, limit) for fmr, limit in zip(fmrs, fixed, strict=True)], weights
