"""Areas under error versus reject for several qualities on one recognizer's embeddings, in bootstrap replicates."""

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
# Steps of 0.1 %, i.e. three of 3,000 pairs. Steps of 1 % would overestimate the areas by up to 0.003.
RATES = tuple(round(0.001 * step, 3) for step in range(301))

Floats = NDArray[np.float64]


class Estimate(NamedTuple):
    """A value, and its bootstrap replicates.

    Attributes:
        value: the value; NaN if it is undefined.
        replicates: ``(B,)`` values in the replicates; NaN where undefined.
    """

    value: float
    replicates: Floats

    def minus(self, other: Estimate) -> Estimate:
        """The paired difference: what makes a replicate hard for both cancels out."""
        return Estimate(self.value - other.value, self.replicates - other.replicates)

    def interval(self) -> Interval | None:
        """The 95 % interval of the replicates; None if it is undefined in all of them."""
        finite = self.replicates[np.isfinite(self.replicates)]
        return percentile_interval(finite) if len(finite) else None


@dataclass(frozen=True)
class RejectAreas:
    """Error versus reject of several qualities, on one recognizer's embeddings of one set, at one FMR.

    Attributes:
        threshold: cosine at or above which pairs are accepted.
        impostors: number of impostor pairs in the set.
        accepted: number of impostor pairs that are accepted.
        genuine: number of genuine pairs.
        fnmr: FNMR without rejection.
        curves: ``(301,)`` FNMR at ``RATES``, by quality.
        areas: mean FNMR over rejection rates from 0 to ``END``, divided by the FNMR without rejection, by quality.
    """

    threshold: float
    impostors: int
    accepted: int
    genuine: int
    fnmr: Estimate
    curves: Mapping[str, Floats]
    areas: Mapping[str, Estimate]


def reject_areas(
    embedding: NDArray[np.floating],
    people: NDArray[np.integer],
    qualities: Mapping[str, NDArray[np.floating]],
    fmrs: Sequence[float],
    replicates: int,
    seed: int,
    *,
    thresholds_on: NDArray[np.floating] | None = None,
) -> dict[float, RejectAreas]:
    """Error versus reject at the recognizer's threshold for each FMR, rejecting genuine pairs of low quality.

    Args:
        embedding: ``(N, d)`` unit embeddings.
        people: ``(N,)`` identity of each image.
        qualities: ``(N,)`` qualities by label, higher is better; the oracle is added.
        fmrs: false match rates.
        replicates: B, number of bootstrap replicates. The resampled people do not depend on the embedding, so the
            replicates of several recognizers on the same images can be averaged and subtracted one by one.
        seed: seed of the bootstrap.
        thresholds_on: ``(N, d)`` unit embeddings of other images of the same people, in the same order, whose impostor
            pairs determine the thresholds; None for ``embedding`` itself.

    Returns:
        The areas by FMR.

    Raises:
        Error: there are too few impostor pairs for an FMR.
    """
    pairs = all_pairs(embedding, people)
    threshold_pairs = pairs if thresholds_on is None else all_pairs(thresholds_on, people)
    for fmr in fmrs:
        check_fmr(fmr, threshold_pairs.impostors, "the images")
    ranks = {label: pair_quality(quality, pairs.genuine_pairs) for label, quality in qualities.items()}
    ranks[ORACLE] = oracle_quality(pairs.genuine, np.ones(len(pairs.genuine)))
    resamples = list(resampled_thresholds(threshold_pairs, fmrs, replicates=replicates, seed=seed))
    return {
        fmr: _areas_at(
            pairs,
            ranks,
            threshold_pairs.threshold(fmr),
            [(thresholds[index], weights) for thresholds, weights in resamples],
        )
        for index, fmr in enumerate(fmrs)
    }


def _areas_at(
    pairs: AllPairs,
    ranks: Mapping[str, Floats],
    threshold: float,
    replicates: Sequence[tuple[float, NDArray[np.float32]]],
) -> RejectAreas:
    """Error versus reject at one threshold, and at that of each replicate.

    ``ranks`` are the qualities ``(G,)`` of the genuine pairs, by label.
    """
    genuine = pairs.genuine.astype(np.float64)
    curves, areas = {}, {}
    for label, quality in ranks.items():
        curves[label] = reject_curve(genuine, quality, threshold, pairs.impostors, RATES).fnmr
        resampled = resampled_curves(genuine, quality, replicates, rates=RATES)
        area = float(normalized_area(curves[label], RATES, END))
        areas[label] = Estimate(area, normalized_area(resampled, RATES, END))
    # Without rejection the quality makes no difference.
    fnmr = Estimate(float(curves[ORACLE][0]), resampled[:, 0])
    accepted = pairs.accepted(threshold)
    return RejectAreas(threshold, pairs.impostors, accepted, len(genuine), fnmr, curves, areas)


def mean(estimates: Sequence[Estimate]) -> Estimate:
    """Mean of the estimates of one quality on several recognizers, in each replicate."""
    return Estimate(
        math.fsum(estimate.value for estimate in estimates) / len(estimates),
        np.mean([estimate.replicates for estimate in estimates], axis=0),
    )
