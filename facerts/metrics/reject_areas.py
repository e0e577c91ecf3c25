"""Areas under error versus reject for several qualities on the same pairs, in bootstrap replicates.

What is rejected is a share of the *pairs* of lowest quality (that of their worse image), or a share of the *images* of
lowest quality, with every pair that has a rejected image. The match threshold is *fixed*, chosen once on all impostor
pairs, or chosen *per rate* on the impostor pairs that remain. An area is the mean FNMR over rejection rates from 0 to
an end, divided by the FNMR without rejection: 1 for a random order, lower is better.

Qualities that are equal cannot be ordered. If a rate falls within a tie, the errors and the pairs that remain are
interpolated linearly over the tie: the expected values when pairs are rejected, and a close approximation when images
are. When thresholds are chosen per rate, impostor pairs in a tie are kept, which can only raise the threshold.

Whole pairs or images are rejected (a share is rounded down); in replicates, where they have weights, parts of them too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.metrics.compared_pairs import ComparedPairs
from facerts.metrics.intervals import Interval, percentile_interval
from facerts.metrics.reject import Convention, normalized_area, pair_quality

Unit = Literal["pairs", "images"]

ORACLE = "oracle"
ENDS = (0.2, 0.3, 0.95)
# Steps of 0.1 % where areas are compared. Steps of 1 % would overestimate them by up to 0.003.
RATES = tuple(round(0.001 * step, 3) for step in range(301)) + tuple(
    round(0.01 * step, 2) for step in range(31, 96)
)
RATES_PER_RATE = tuple(round(0.01 * step, 2) for step in range(96))
# Weights of pairs that are held in memory at a time.
CHUNK = 4_000_000

Floats = NDArray[np.float64]


class Estimate(NamedTuple):
    """A value, and its bootstrap replicates.

    Attributes:
        value: the value; NaN if it is undefined.
        replicates: ``(B,)`` values in the replicates; NaN where undefined. Empty if there are none.
    """

    value: float
    replicates: Floats

    def minus(self, other: Estimate) -> Estimate:
        """The paired difference: what makes a replicate hard for both cancels out."""
        return Estimate(self.value - other.value, self.replicates - other.replicates)

    def times(self, other: Estimate) -> Estimate:
        """The product in each replicate."""
        return Estimate(self.value * other.value, self.replicates * other.replicates)

    def interval(self) -> Interval | None:
        """The 95 % interval of the replicates; None if it is undefined in all of them."""
        finite = self.replicates[np.isfinite(self.replicates)]
        return percentile_interval(finite) if len(finite) else None


@dataclass(frozen=True)
class RejectAreas:
    """Error versus reject of several qualities, on one recognizer's scores of the same pairs, at one FMR.

    Attributes:
        threshold: score at or above which pairs are accepted, before any is rejected by its quality.
        impostors: number of impostor pairs.
        accepted: number of impostor pairs that are accepted; with ``thresholds_on`` that may be more than the FMR.
        genuine: number of genuine pairs.
        fnmr: FNMR without rejection.
        rates: ``(R,)`` shares rejected: ``RATES``, or ``RATES_PER_RATE`` where thresholds are chosen per rate.
        curves: ``(R,)`` FNMR at the rates, by quality; NaN where no genuine pair is left.
        areas: by quality and end of ``ENDS``, the mean FNMR over rates from 0 to the end, divided by the FNMR without
            rejection; NaN if there are no errors, or no genuine pair is left at the end. The undivided area is
            ``areas[quality][end].times(fnmr)``.
    """

    threshold: float
    impostors: int
    accepted: int
    genuine: int
    fnmr: Estimate
    rates: tuple[float, ...]
    curves: Mapping[str, Floats]
    areas: Mapping[str, Mapping[float, Estimate]]


def reject_areas(
    pairs: ComparedPairs,
    qualities: Mapping[str, ArrayLike],
    fmrs: Sequence[float],
    *,
    unit: Unit = "pairs",
    convention: Convention = "fixed",
    replicates: int = 300,
    seed: int = 0,
    thresholds_on: ComparedPairs | None = None,
) -> dict[float, RejectAreas]:
    """Error versus reject at the recognizer's threshold for each FMR.

    Args:
        pairs: the pairs, see ``compare_all`` and ``compare_listed``.
        qualities: ``(N,)`` qualities of the images by label, higher is better. If pairs are rejected, the best possible
            order is added as "oracle": each pair's own score. No simple order is the best one if images are rejected or
            thresholds are chosen per rate, so there is no oracle then.
        fmrs: false match rates.
        unit: what is rejected: a share of the genuine pairs, or of the images.
        convention: "fixed" or "per_rate". With "per_rate" the impostor pairs are rejected, too: the same share of them
            by their own quality, or those of rejected images. Where few pairs are left, a threshold may accept none of
            the impostors; if it lies below the impostor scores that are kept, FNMR is NaN. There are no replicates.
        replicates: B, number of bootstrap replicates, each with its own threshold. An image counts as often as its
            person was drawn (once if people are unknown), a pair as in ``resample``.
        seed: seed of the bootstrap. What is drawn does not depend on the scores, so that the replicates of several
            recognizers on the same pairs can be averaged and subtracted one by one.
        thresholds_on: the same pairs of other images of the same people, whose scores determine the thresholds; None
            for ``pairs`` itself. Only with "fixed".

    Returns:
        The areas by FMR.

    Raises:
        ValueError: a quality is not finite or does not have one value for each image, an FMR cannot be measured on
            the impostor pairs, or ``thresholds_on`` has other pairs.

    Examples:
        Nine images of three people. The last one of each is poor: it fails to match the others of its person, and
        resembles the other poor ones, which makes the threshold strict. Six of nine genuine pairs are errors. If the
        three poor images are rejected, none is left, but three rejected pairs leave three of six; if impostor pairs are
        rejected, too, the threshold falls.

        >>> from itertools import combinations
        >>> from facerts.metrics.compared_pairs import compare_listed
        >>> people, poor = np.repeat([0, 1, 2], 3), [2, 5, 8]
        >>> rows = np.array(list(combinations(range(9), 2)))
        >>> same = people[rows[:, 0]] == people[rows[:, 1]]
        >>> poor_images = np.isin(rows, poor).sum(axis=1)
        >>> scores = np.where(same, np.where(poor_images, 0.4, 0.8), np.where(poor_images == 2, 0.5, 0.1))
        >>> pairs = compare_listed(scores, same, rows, people)
        >>> sharpness = [9, 8, 1, 7, 6, 2, 5, 4, 3]
        >>> for unit in ("pairs", "images"):
        ...     for convention in ("fixed", "per_rate"):
        ...         found = reject_areas(pairs, {"sharpness": sharpness}, [0.04], unit=unit, convention=convention)
        ...         fnmr = dict(zip(found[0.04].rates, found[0.04].curves["sharpness"].round(3).tolist()))
        ...         print(f"{unit:6} {convention:8}", fnmr[0.0], fnmr[0.23], fnmr[0.41])
        pairs  fixed    0.667 0.571 0.5
        pairs  per_rate 0.667 0.571 0.0
        images fixed    0.667 0.4 0.0
        images per_rate 0.667 0.0 0.0
    """
    if unit not in ("pairs", "images") or convention not in ("fixed", "per_rate"):
        raise ValueError(f"there is no unit {unit!r} with the convention {convention!r}")
    source = pairs if thresholds_on is None else thresholds_on
    _check_same_pairs(pairs, source, convention)
    checked = {label: _checked(label, quality, pairs) for label, quality in qualities.items()}
    thresholds = np.array([[source.threshold(fmr)] for fmr in fmrs]).reshape(-1, 1)
    resamples = source.resamples(fmrs, 0 if convention == "per_rate" else replicates, seed)
    fnmr = _without_rejection(pairs, thresholds, resamples.thresholds, resamples.drawn)
    orders = {label: _order(pairs, quality, unit) for label, quality in checked.items()}
    if unit == "pairs" and convention == "fixed":
        scores = np.asarray(pairs.genuine_scores, dtype=np.float64)
        orders[ORACLE] = _Order(pairs, scores, scores, pairs.genuine_units)

    rates = RATES if convention == "fixed" else RATES_PER_RATE
    curves: list[dict[str, Floats]] = [{} for _ in fmrs]
    areas: list[dict[str, dict[float, Estimate]]] = [{} for _ in fmrs]
    for label, order in orders.items():
        if convention == "fixed":
            found = order.curves(thresholds, rates)[:, 0]
        else:
            by_rate = _thresholds_per_rate(pairs, checked[label], fmrs, unit, rates)
            found = np.column_stack(
                [order.curves(by_rate[:, [i]], [rate])[:, 0] for i, rate in enumerate(rates)]
            )
        resampled = order.curves(resamples.thresholds, rates, resamples.drawn)
        for i in range(len(fmrs)):
            curves[i][label] = found[i]
            areas[i][label] = {
                end: Estimate(
                    float(normalized_area(found[i], rates, end)), normalized_area(resampled[i], rates, end)
                )
                for end in ENDS
            }
    return {
        fmr: RejectAreas(
            float(thresholds[i, 0]),
            pairs.impostors,
            pairs.accepted(float(thresholds[i, 0])),
            pairs.genuine,
            fnmr[i],
            rates,
            curves[i],
            areas[i],
        )
        for i, fmr in enumerate(fmrs)
    }


class _Order:
    """An order in which pairs or images are rejected, and the genuine pairs that each step takes along."""

    def __init__(
        self,
        pairs: ComparedPairs,
        quality: Floats,
        rejected_quality: Floats,
        rejected_units: NDArray[np.int64] | None,
    ) -> None:
        """Sort once, for all thresholds and replicates.

        Args:
            pairs: the pairs.
            quality: ``(G,)`` quality of each genuine pair.
            rejected_quality: ``(U,)`` quality of what is rejected: genuine pairs or images.
            rejected_units: ``(U,)`` their columns of ``Resamples.drawn``; None if they count once in each replicate.
        """
        order = np.argsort(quality, kind="stable")
        rejected_order = np.argsort(rejected_quality, kind="stable")
        levels = np.unique(rejected_quality)
        self.scores = np.asarray(pairs.genuine_scores, dtype=np.float64)[order]
        self.units = pairs.genuine_units[order]
        self.rejected = len(rejected_quality)
        self.rejected_units = None if rejected_units is None else rejected_units[rejected_order]
        # Where each tie ends.
        self.ends = np.searchsorted(quality[order], levels, side="right")
        self.rejected_ends = np.searchsorted(rejected_quality[rejected_order], levels, side="right")

    def curves(
        self, thresholds: Floats, rates: Sequence[float], drawn: NDArray[np.float32] | None = None
    ) -> Floats:
        """FNMR by threshold and share rejected.

        Args:
            thresholds: ``(F, B)`` thresholds by FMR and replicate.
            rates: R shares to reject.
            drawn: ``(B, U)`` how often people or genuine pairs were drawn; None to count each pair once, and to reject
                whole pairs or images.

        Returns:
            ``(F, B, R)``; NaN where no genuine pair is left or the threshold is NaN.
        """
        found = np.empty((*thresholds.shape, len(rates)))
        size = max(1, CHUNK // (len(self.scores) + self.rejected))
        for start in range(0, thresholds.shape[1], size):
            part = slice(start, start + size)
            found[:, part] = self._chunk(thresholds[:, part], rates, None if drawn is None else drawn[part])
        return found

    def _chunk(self, thresholds: Floats, rates: Sequence[float], drawn: NDArray[np.float32] | None) -> Floats:
        replicates = thresholds.shape[1]
        once = np.ones((replicates, 1))
        pair_weights = once if drawn is None else drawn[:, self.units]
        rejected_weights = (
            once if drawn is None or self.rejected_units is None else drawn[:, self.rejected_units]
        )
        rejected = _running(rejected_weights, self.rejected, self.rejected_ends)
        amounts = np.asarray(rates) * rejected[:, -1:]
        if drawn is None:
            amounts = np.minimum(np.floor(amounts + 1e-9), rejected[:, -1:] - 1)
        places = [_place(*row) for row in zip(rejected, amounts, strict=True)]
        left = _left(_running(pair_weights, len(self.scores), self.ends), places)
        found = []
        for limits in thresholds:
            wrong = pair_weights * (self.scores < limits[:, None])
            errors = _left(_running(wrong, len(self.scores), self.ends), places)
            found.append(np.divide(errors, left, out=np.full_like(left, np.nan), where=left > 1e-9))
            found[-1][np.isnan(limits)] = np.nan
        return np.array(found)


def _running(weights: NDArray[np.floating], count: int, ends: NDArray[np.intp]) -> Floats:
    """``(B, L + 1)`` weight up to the end of each tie, from 0, of ``(B, count)`` or ``(B, 1)`` weights."""
    every = np.broadcast_to(weights, (len(weights), count))
    running = np.zeros((len(weights), count + 1))
    np.cumsum(every, axis=1, dtype=np.float64, out=running[:, 1:])
    return running[:, np.concatenate([[0], ends])]


def _place(rejected: Floats, amounts: Floats) -> tuple[NDArray[np.intp], Floats]:
    """The tie in which each amount falls, and the part of the tie that is rejected."""
    tie = np.minimum(np.searchsorted(rejected, amounts, side="right") - 1, len(rejected) - 2)
    size = rejected[tie + 1] - rejected[tie]
    return tie, np.divide(amounts - rejected[tie], size, out=np.zeros_like(amounts), where=size > 0)


def _left(running: Floats, places: Sequence[tuple[NDArray[np.intp], Floats]]) -> Floats:
    """``(B, R)`` weight that is left at each place."""
    return np.array(
        [
            row[-1] - row[tie] - part * (row[tie + 1] - row[tie])
            for row, (tie, part) in zip(running, places, strict=True)
        ]
    )


def _order(pairs: ComparedPairs, quality: Floats, unit: Unit) -> _Order:
    of_pairs = pair_quality(quality, pairs.genuine_pairs)
    if unit == "pairs":
        return _Order(pairs, of_pairs, of_pairs, pairs.genuine_units)
    people = None if pairs.people is None else pairs.people[pairs.images]
    return _Order(pairs, of_pairs, quality[pairs.images], people)


def _thresholds_per_rate(
    pairs: ComparedPairs, quality: Floats, fmrs: Sequence[float], unit: Unit, rates: Sequence[float]
) -> Floats:
    """``(F, R)`` thresholds on the impostor pairs that remain; a tie at the rate is kept as a whole."""
    ranks, counts = pairs.ranked_impostors(quality)
    ordered = np.sort(quality[pairs.images])
    tail = quality[pairs.tail_pairs].min(axis=1)
    thresholds = np.empty((len(fmrs), len(rates)))
    for column, rate in enumerate(rates):
        if unit == "images":
            cut = ordered[_rejected(rate, len(ordered))]
        else:
            cut = ranks[np.searchsorted(counts, pairs.impostors - _rejected(rate, pairs.impostors))]
        above = np.searchsorted(-ranks, -cut, side="right")
        left = int(counts[above - 1]) if above else 0
        thresholds[:, column] = pairs.thresholds_left(fmrs, tail >= cut, left)
    return thresholds


def _rejected(rate: float, count: int) -> int:
    return min(int(np.floor(rate * count + 1e-9)), count - 1)


def _without_rejection(
    pairs: ComparedPairs, thresholds: Floats, resampled: Floats, drawn: NDArray[np.float32]
) -> list[Estimate]:
    """FNMR at each FMR, and in the replicates."""
    scores, units = np.asarray(pairs.genuine_scores, dtype=np.float64), pairs.genuine_units
    weights = drawn.astype(np.float64)
    total = weights @ np.bincount(units, minlength=weights.shape[1]) if len(weights) else np.empty(0)
    estimates = []
    for threshold, limits in zip(thresholds[:, 0], resampled, strict=True):
        errors = [
            row @ np.bincount(units, scores < limit, minlength=len(row))
            for row, limit in zip(weights, limits, strict=True)
        ]
        fnmr = np.divide(errors, total, out=np.full(len(total), np.nan), where=total > 0)
        estimates.append(Estimate(float(np.mean(scores < threshold)), fnmr))
    return estimates


def _checked(label: str, quality: ArrayLike, pairs: ComparedPairs) -> Floats:
    values = np.asarray(quality, dtype=np.float64)
    if label == ORACLE:
        raise ValueError(f"{ORACLE!r} is the best possible order; give the quality another label")
    images = int(pairs.images.max()) + 1 if pairs.people is None else len(pairs.people)
    if values.ndim != 1 or len(values) < images or (len(values) > images and pairs.people is not None):
        raise ValueError(f"{label}: qualities are {values.shape}, but there are {images} images")
    wrong = pairs.images[~np.isfinite(values[pairs.images])]
    if len(wrong):
        raise ValueError(f"{label}: the quality of image {wrong[0]} is not finite")
    return values


def _check_same_pairs(pairs: ComparedPairs, source: ComparedPairs, convention: Convention) -> None:
    if source is pairs:
        return
    if convention == "per_rate":
        raise ValueError("thresholds from other images cannot be chosen again per rate")
    same_people = (
        source.people is None
        if pairs.people is None
        else source.people is not None and np.array_equal(pairs.people, source.people)
    )
    if not same_people or not np.array_equal(pairs.genuine_pairs, source.genuine_pairs):
        raise ValueError("thresholds can only come from the same pairs of other images of the same people")


def mean(estimates: Sequence[Estimate]) -> Estimate:
    """Mean of estimates, e.g. of one quality on several recognizers, in each replicate."""
    return Estimate(
        math.fsum(estimate.value for estimate in estimates) / len(estimates),
        np.mean([estimate.replicates for estimate in estimates], axis=0),
    )
