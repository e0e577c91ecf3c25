"""Error versus reject: how the false non-match rate falls as pairs of low quality are rejected.

What is rejected is a share of the genuine pairs of lowest quality (that of their worse image). The match threshold is
chosen once, on all impostor pairs, as in a deployed system. Fig. 8 of the RTS paper plots FNMR at FMR 1e-3 against the
share of pairs rejected; ``pauc`` makes one number of such a curve.

Qualities that are equal cannot be ordered. If a rate falls within a tie, the errors and the pairs that remain are
interpolated linearly over the tie, which gives the expected values.

Whole pairs are rejected (a share is rounded down); in replicates, where they have weights, parts of them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.metrics.compared_pairs import ComparedPairs
from facerts.metrics.intervals import Estimate
from facerts.metrics.verification import check_fmr

ORACLE = "oracle"
ENDS = (0.2, 0.3, 0.95)
# Shares rejected by the curves.
RATES = tuple(round(0.01 * step, 2) for step in range(96))
# Areas take steps of 0.1%. Steps of 1% would overestimate them by up to 0.003.
FINE_RATES = tuple(round(0.001 * step, 3) for step in range(301)) + RATES[31:]
# Weights of pairs that are held in memory at a time.
CHUNK = 4_000_000

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RejectCurve:
    """Error versus reject by one quality.

    Attributes:
        fnmr: ``(96,)`` FNMR at ``RATES``; NaN where no genuine pair is left.
        ci95: ``(2, 96)`` ends of its 95% intervals; None without replicates.
        pauc: mean FNMR over the rates from 0 to each of ``ENDS``; NaN if no genuine pair is left there.
        area: the same, divided by the FNMR without rejection: 1 for a random order, lower is better; NaN if there are
            no errors.
    """

    fnmr: Floats
    ci95: Floats | None
    pauc: Mapping[float, Estimate]
    area: Mapping[float, Estimate]


@dataclass(frozen=True)
class ErrorVersusReject:
    """Error versus reject by several qualities, on one recognizer's scores of the same pairs, at one FMR.

    Attributes:
        threshold: score at or above which pairs are accepted, before any is rejected by its quality.
        accepted: number of impostor pairs that are accepted; with ``thresholds_on`` that may be more than the FMR.
        fnmr: FNMR without rejection.
    """

    threshold: float
    impostors: int
    accepted: int
    genuine: int
    fnmr: Estimate
    by: Mapping[str, RejectCurve]


def pair_quality(quality: ArrayLike, pairs: NDArray[np.integer]) -> Floats:
    """``(P,)`` quality of pairs ``(P, 2)`` from ``(N,)`` that of images: a pair is as good as its worse image."""
    return np.asarray(np.asarray(quality, dtype=np.float64)[pairs].min(axis=1))


def pauc(fnmr: ArrayLike, rates: Sequence[float], end: float) -> NDArray[np.float64]:
    """pAUC, the partial area under FNMR curves from no rejection up to ``end``, divided by it: ``(…, R)`` to ``(…)``.

    It is the mean FNMR over the shares rejected, by trapezoids: one number for a quality, lower is better. Divided by
    the FNMR without rejection, it is 1 for a quality that says nothing; tables call that the *area*.

    Of the R ``rates``, shares rejected, ascending from 0, ``end`` is one.

    Examples:
        >>> round(float(pauc([0.4, 0.2, 0.0], rates=[0.0, 0.1, 0.2], end=0.2)), 4)
        0.2
    """
    shares, curves = np.asarray(rates, dtype=np.float64), np.asarray(fnmr, dtype=np.float64)
    inside = (shares > 0) & (shares <= end + 1e-9)
    if shares[0] != 0 or not inside.any() or abs(shares[inside][-1] - end) > 1e-9:
        raise ValueError(f"{end} is not one of the rates, which must begin at 0 and then be positive")
    count = int(inside.sum()) + 1
    means = (curves[..., 1:count] + curves[..., : count - 1]) / 2
    return np.asarray(np.sum(means * np.diff(shares[:count]), axis=-1) / end)


def error_versus_reject(
    pairs: ComparedPairs,
    qualities: Mapping[str, ArrayLike],
    fmrs: Sequence[float],
    *,
    replicates: int = 300,
    seed: int = 0,
    thresholds_on: ComparedPairs | None = None,
) -> dict[float, ErrorVersusReject]:
    """Error versus reject at the recognizer's threshold for each FMR.

    Args:
        qualities: ``(N,)`` qualities of the images by label, higher is better. The best possible order is added as
            "oracle": each pair's own score.
        replicates: B, number of bootstrap replicates, each with its own threshold. An image counts as often as its
            person was drawn (once if people are unknown), a pair as in ``pair_weights``.
        seed: seed of the bootstrap. What is drawn does not depend on the scores, so that the replicates of several
            recognizers on the same pairs can be averaged and subtracted one by one.
        thresholds_on: the same pairs of other images of the same people, whose scores determine the thresholds; None
            for ``pairs`` itself.

    Returns:
        The curves by FMR.

    Raises:
        ValueError: a quality is not finite or does not have one value for each image, an FMR cannot be measured on
            the impostor pairs, or ``thresholds_on`` has other pairs.

    Examples:
        Nine images of three people. The last one of each is poor: it fails to match the others of its person, and
        resembles the other poor ones, which makes the threshold strict. Six of nine genuine pairs are errors, and three
        rejected pairs leave three of six.

        >>> from itertools import combinations
        >>> from facerts.metrics.compared_pairs import compare_listed
        >>> people, poor = np.repeat([0, 1, 2], 3), [2, 5, 8]
        >>> rows = np.array(list(combinations(range(9), 2)))
        >>> same = people[rows[:, 0]] == people[rows[:, 1]]
        >>> poor_images = np.isin(rows, poor).sum(axis=1)
        >>> scores = np.where(same, np.where(poor_images, 0.4, 0.8), np.where(poor_images == 2, 0.5, 0.1))
        >>> pairs = compare_listed(scores, same, rows, people)
        >>> sharpness = [9, 8, 1, 7, 6, 2, 5, 4, 3]
        >>> fnmr = error_versus_reject(pairs, {"q": sharpness}, [0.04])[0.04].by["q"].fnmr.round(3)
        >>> fnmr[[0, 23, 41]].tolist()
        [0.667, 0.571, 0.5]
    """
    source = pairs if thresholds_on is None else thresholds_on
    _check_same_pairs(pairs, source)
    checked = {label: _checked(label, quality, pairs) for label, quality in qualities.items()}
    for fmr in fmrs:
        check_fmr(fmr, source.impostors)
    thresholds = np.array([[source.threshold(fmr)] for fmr in fmrs]).reshape(-1, 1)
    limits, drawn = _replicates(source, fmrs, replicates, seed)
    orders = {label: _Order(pairs, pair_quality(quality, pairs.genuine_pairs)) for label, quality in checked.items()}
    orders[ORACLE] = _Order(pairs, np.asarray(pairs.genuine, dtype=np.float64))

    curves: list[dict[str, RejectCurve]] = [{} for _ in fmrs]
    for label, order in orders.items():
        whole, resampled = order.curves(thresholds)[:, 0], order.curves(limits, drawn)
        for i in range(len(fmrs)):
            curves[i][label] = _curve(whole[i], resampled[i])
    # Before anything is rejected, the order does not matter.
    fnmr = [Estimate(float(whole[i, 0]), resampled[i, :, 0]) for i in range(len(fmrs))]
    return {
        fmr: ErrorVersusReject(
            float(thresholds[i, 0]),
            pairs.impostors,
            pairs.accepted(float(thresholds[i, 0])),
            len(pairs.genuine),
            fnmr[i],
            curves[i],
        )
        for i, fmr in enumerate(fmrs)
    }


def _replicates(
    pairs: ComparedPairs, fmrs: Sequence[float], replicates: int, seed: int
) -> tuple[Floats, NDArray[np.float32]]:
    """Thresholds ``(F, B)`` by FMR and replicate, and ``(B, U)`` how often people or genuine pairs are drawn."""
    rows = list(pairs.resampled(fmrs, replicates=replicates, seed=seed))
    limits = np.array([limits for limits, _ in rows], dtype=np.float64).reshape(-1, len(fmrs)).T
    units = len(pairs.genuine) if pairs.people is None else int(pairs.people.max()) + 1
    drawn = np.array([drawn for _, drawn in rows], dtype=np.float32).reshape(-1, units)
    return np.nextafter(limits, np.inf), drawn


def _curve(fnmr: Floats, resampled: Floats) -> RejectCurve:
    """From FNMR ``(R,)`` at ``FINE_RATES``, and ``(B, R)`` in the replicates."""
    rates = FINE_RATES
    steps = np.searchsorted(rates, np.array(RATES) - 1e-9)
    defined = resampled[~np.isnan(resampled[:, 0])][:, steps]
    areas = {end: Estimate(float(pauc(fnmr, rates, end)), pauc(resampled, rates, end)) for end in ENDS}
    without = Estimate(float(fnmr[0]), resampled[:, 0])
    return RejectCurve(
        fnmr[steps],
        np.quantile(defined, [0.025, 0.975], axis=0) if len(defined) else None,
        areas,
        {end: area.over(without) for end, area in areas.items()},
    )


class _Order:
    """An order in which genuine pairs are rejected."""

    def __init__(self, pairs: ComparedPairs, quality: Floats) -> None:
        """Sort once by the ``(G,)`` quality of each genuine pair, for all thresholds and replicates."""
        order = np.argsort(quality, kind="stable")
        self.scores = np.asarray(pairs.genuine, dtype=np.float64)[order]
        self.units = pairs.genuine_units[order]
        # Where each tie ends, after the start of the first.
        self.ends = np.append(0, np.searchsorted(quality[order], np.unique(quality), side="right"))

    def curves(self, thresholds: Floats, drawn: NDArray[np.float32] | None = None) -> Floats:
        """FNMR ``(F, B, R)`` by threshold and share rejected, at ``FINE_RATES``; NaN where no genuine pair is left.

        Thresholds ``(F, B)`` are by FMR and replicate; ``drawn`` ``(B, U)`` is how often people or genuine pairs were
        drawn, None to count each pair once, and to reject whole pairs.
        """
        fnmr = np.empty((*thresholds.shape, len(FINE_RATES)))
        size = max(1, CHUNK // (2 * len(self.scores)))
        for start in range(0, thresholds.shape[1], size):
            part = slice(start, start + size)
            fnmr[:, part] = self._chunk(thresholds[:, part], None if drawn is None else drawn[part])
        return fnmr

    def _chunk(self, thresholds: Floats, drawn: NDArray[np.float32] | None) -> Floats:
        weights = np.ones((1, self.units.max() + 1), dtype=np.float32) if drawn is None else drawn
        running = _running(weights[:, self.units])
        rejected = running[:, self.ends]
        amounts = np.asarray(FINE_RATES) * rejected[:, -1:]
        if drawn is None:
            amounts = np.minimum(np.floor(amounts + 1e-9), rejected[:, -1:] - 1)
        places = [_place(*row) for row in zip(rejected, amounts, strict=True)]
        left = _left(running, self.ends, places)
        fnmr = []
        for limits in thresholds:
            # Most pairs are right at every threshold; the others are counted.
            wrong = np.flatnonzero(self.scores < limits.max(initial=-np.inf))
            wrong_weights = weights[:, self.units[wrong]] * (self.scores[wrong] < limits[:, None])
            errors = _left(_running(wrong_weights), np.searchsorted(wrong, self.ends), places)
            fnmr.append(np.divide(errors, left, out=np.full_like(left, np.nan), where=left > 1e-9))
        return np.array(fnmr)


def _running(weights: NDArray[np.floating]) -> Floats:
    """``(B, K + 1)`` weight of the first 0 to K of ``(B, K)``."""
    running = np.zeros((len(weights), weights.shape[1] + 1))
    np.cumsum(weights, axis=1, dtype=np.float64, out=running[:, 1:])
    return running


def _place(rejected: Floats, amounts: Floats) -> tuple[NDArray[np.intp], Floats]:
    """The tie in which each amount falls, and the part of the tie that is rejected."""
    tie = np.minimum(np.searchsorted(rejected, amounts, side="right") - 1, len(rejected) - 2)
    size = rejected[tie + 1] - rejected[tie]
    return tie, np.divide(amounts - rejected[tie], size, out=np.zeros_like(amounts), where=size > 0)


def _left(running: Floats, ends: NDArray[np.intp], places: Sequence[tuple[NDArray[np.intp], Floats]]) -> Floats:
    """``(B, R)`` weight that is left at each place, from the running weight and where each tie ends in it."""
    return np.array(
        [
            row[-1] - row[ends[tie]] - part * (row[ends[tie + 1]] - row[ends[tie]])
            for row, (tie, part) in zip(running, places, strict=True)
        ]
    )


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


def _check_same_pairs(pairs: ComparedPairs, source: ComparedPairs) -> None:
    if source is pairs:
        return
    same_people = (
        source.people is None
        if pairs.people is None
        else source.people is not None and np.array_equal(pairs.people, source.people)
    )
    if not same_people or not np.array_equal(pairs.genuine_pairs, source.genuine_pairs):
        raise ValueError("thresholds can only come from the same pairs of other images of the same people")
