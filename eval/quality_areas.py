"""Areas of error versus reject by several qualities on one recognizer's embeddings, replicate by replicate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from facerts.evaluation.reject import check_fmr
from facerts.metrics.all_pairs import AllPairs, all_pairs, resampled_thresholds
from facerts.metrics.intervals import Interval, percentile_interval
from facerts.metrics.reject import (
    normalized_area,
    oracle_quality,
    pair_quality,
    reject_curve,
    resampled_curves,
)

ORACLE = "oracle"
END = 0.3
# Three of 3,000 pairs at each step; as the ends of trapezoids, steps of 1 % make areas up to 0.003 too large.
RATES = tuple(round(0.001 * step, 3) for step in range(301))

Floats = NDArray[np.float64]


class Estimate(NamedTuple):
    """A number, and what it is in each replicate of the bootstrap.

    Attributes:
        value: NaN where it is not defined.
        drawn: ``(B,)``, likewise.
    """

    value: float
    drawn: Floats

    def minus(self, other: Estimate) -> Estimate:
        """The difference, in each replicate too: what makes a replicate hard for both cancels out."""
        return Estimate(self.value - other.value, self.drawn - other.drawn)

    def interval(self) -> Interval | None:
        """95 % of the replicates; None where no replicate defines it."""
        known = self.drawn[np.isfinite(self.drawn)]
        return percentile_interval(known) if len(known) else None


@dataclass(frozen=True)
class Judged:
    """Qualities on one recognizer's embeddings of one set, at one FMR.

    Attributes:
        threshold: cosine; pairs are accepted at or above.
        impostors: pairs of two people in the set.
        accepted: how many of them.
        genuine: pairs of one person.
        fnmr: without rejection.
        curves: ``(301,)`` FNMR at ``RATES`` by quality.
        areas: by quality: mean FNMR from 0 to ``END`` rejected, divided by FNMR without rejection.
    """

    threshold: float
    impostors: int
    accepted: int
    genuine: int
    fnmr: Estimate
    curves: Mapping[str, Floats]
    areas: Mapping[str, Estimate]


def judge(
    embedding: NDArray[np.floating],
    people: NDArray[np.integer],
    qualities: Mapping[str, NDArray[np.floating]],
    fmrs: Sequence[float],
    replicates: int,
    seed: int,
    *,
    thresholds_on: NDArray[np.floating] | None = None,
) -> dict[float, Judged]:
    """Reject the genuine pairs of lowest quality, at the recognizer's threshold for each FMR.

    Args:
        embedding: ``(N, d)`` of unit length.
        people: ``(N,)`` person of each image.
        qualities: ``(N,)`` by label, higher is better; the oracle is added.
        fmrs: false match rates.
        replicates: B of the bootstrap. The same people are drawn whatever the embedding, so estimates of several
            recognizers on the same images can be averaged and subtracted replicate by replicate.
        seed: of the drawing.
        thresholds_on: ``(N, d)`` of other images of the same people, in the same order, whose impostor pairs give the
            thresholds; None for ``embedding`` itself.

    Raises:
        Error: there are too few impostor pairs for a rate.
    """
    every = all_pairs(embedding, people)
    giving = every if thresholds_on is None else all_pairs(thresholds_on, people)
    for fmr in fmrs:
        check_fmr(fmr, giving.impostors, "the images")
    ranks = {label: pair_quality(quality, every.genuine_pairs) for label, quality in qualities.items()}
    ranks[ORACLE] = oracle_quality(every.genuine, np.ones(len(every.genuine)))
    drawn = list(resampled_thresholds(giving, fmrs, replicates=replicates, seed=seed))
    return {
        fmr: _judged(
            every, ranks, giving.threshold(fmr), [(limits[place], weights) for limits, weights in drawn]
        )
        for place, fmr in enumerate(fmrs)
    }


def _judged(
    every: AllPairs,
    ranks: Mapping[str, Floats],
    threshold: float,
    replicates: Sequence[tuple[float, NDArray[np.float32]]],
) -> Judged:
    """At one threshold, and at that of each replicate; ``ranks`` are ``(G,)`` qualities of the genuine pairs."""
    genuine = every.genuine.astype(np.float64)
    curves, areas = {}, {}
    for label, quality in ranks.items():
        curves[label] = reject_curve(genuine, quality, threshold, every.impostors, RATES).fnmr
        drawn = resampled_curves(genuine, quality, replicates, rates=RATES)
        area = float(normalized_area(curves[label], RATES, END))
        areas[label] = Estimate(area, normalized_area(drawn, RATES, END))
    fnmr = Estimate(float(curves[ORACLE][0]), drawn[:, 0])  # nothing is rejected yet, whatever the quality
    return Judged(threshold, every.impostors, every.accepted(threshold), len(genuine), fnmr, curves, areas)


def mean(estimates: Sequence[Estimate]) -> Estimate:
    """Of one quality on several recognizers, replicate by replicate."""
    return Estimate(
        math.fsum(one.value for one in estimates) / len(estimates),
        np.mean([one.drawn for one in estimates], axis=0),
    )
