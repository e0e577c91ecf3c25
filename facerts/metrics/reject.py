"""Error versus reject: how the false non-match rate falls as the worst pairs are left out.

The paper's Fig. 8 draws FNMR at FMR 1e-3 against the share of pairs rejected. A pair's quality is the lower of
its two images'. Two conventions are in use, and both are here: with a *fixed* threshold, chosen once on all
impostor pairs and kept (what a deployed system does), and with one chosen anew *per rate* on the impostor pairs
that are left. Pairs of equal quality cannot be told apart, so where a rate cuts through a tie, the expected
value over a random order within the tie is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.metrics.intervals import Interval, percentile_interval
from facerts.metrics.resample import pair_weights
from facerts.metrics.verification import check_pairs, fmr_threshold, trapezoid

Convention = Literal["fixed", "per_rate"]
Combine = Literal["min", "mean", "product"]

RATES: tuple[float, ...] = tuple(round(0.01 * percent, 2) for percent in range(96))


def pair_quality(
    quality: ArrayLike, pairs: NDArray[np.integer], combine: Combine = "min"
) -> NDArray[np.float64]:
    """One quality for each pair.

    Args:
        quality: ``(N,)`` per image.
        pairs: ``(P, 2)`` row numbers.
        combine: "min", a pair is as good as its worse image (the field's convention); "mean"; or "product", for
            qualities above 0.

    Raises:
        ValueError: a product of qualities that are not all above 0, whose order would mean nothing.
    """
    both = np.asarray(quality, dtype=np.float64)[pairs]
    if combine == "product" and (both <= 0).any():
        raise ValueError("the product of two qualities needs both above 0; combine them by min or mean")
    combined: NDArray[np.float64] = {"min": both.min, "mean": both.mean, "product": both.prod}[combine](
        axis=1
    )
    return combined


@dataclass(frozen=True)
class RejectCurve:
    """FNMR by the share rejected.

    Attributes:
        rejected: ``(R,)`` shares of pairs rejected, rising from 0.
        fnmr: ``(R,)``.
        threshold: ``(R,)``; one value throughout where the convention is "fixed".
        impostors: impostor pairs behind the threshold, before any is rejected.
    """

    rejected: NDArray[np.float64]
    fnmr: NDArray[np.float64]
    threshold: NDArray[np.float64]
    impostors: int


def error_versus_reject(
    scores: ArrayLike,
    same: ArrayLike,
    quality: ArrayLike,
    *,
    fmr: float = 1e-3,
    convention: Convention = "fixed",
    rates: Sequence[float] = RATES,
) -> RejectCurve:
    """FNMR at a false match rate while the pairs of lowest quality are rejected.

    Args:
        scores: ``(P,)`` similarity.
        same: ``(P,) bool``.
        quality: ``(P,)`` of each pair, higher is better; see ``pair_quality``.
        fmr: false match rate at which the threshold is chosen.
        convention: "fixed" or "per_rate", see the module.
        rates: shares to reject, in [0, 1). With "fixed" they are shares of the genuine pairs, the only ones that
            FNMR counts; with "per_rate" genuine and impostor pairs are each rejected at the rate.

    Raises:
        ValueError: as ``check_pairs``, or a quality is not finite, or a rate out of range.

    Examples:
        >>> scores = [0.9, 0.8, 0.2, 0.7, 0.3, 0.1]
        >>> same = [True, True, True, True, False, False]
        >>> quality = [0.9, 0.7, 0.1, 0.8, 0.5, 0.5]
        >>> error_versus_reject(scores, same, quality, fmr=0.1, rates=[0.0, 0.25]).fnmr.tolist()
        [0.25, 0.0]
    """
    values, flags = check_pairs(np.asarray(scores, dtype=np.float64), same)
    ranks = np.asarray(quality, dtype=np.float64)
    if ranks.shape != values.shape or not np.isfinite(ranks).all():
        raise ValueError("error versus reject needs a finite quality for every pair")
    shares = np.asarray(rates, dtype=np.float64)
    if (shares < 0).any() or (shares >= 1).any():
        raise ValueError("rates of rejection lie in [0, 1)")
    impostors, genuine = values[~flags], values[flags]
    if convention == "fixed":
        return reject_curve(genuine, ranks[flags], fmr_threshold(impostors, fmr), len(impostors), rates)
    kept = [_kept_by_rank(ranks[~flags], share) for share in shares]
    threshold = np.array([fmr_threshold(impostors[keep], fmr) for keep in kept])
    fnmr = [
        _mean_of_kept((genuine < limit).astype(np.float64), ranks[flags], shares[i : i + 1])[0]
        for i, limit in enumerate(threshold)
    ]
    return RejectCurve(shares, np.array(fnmr), threshold, len(impostors))


def reject_curve(
    genuine: ArrayLike,
    quality: ArrayLike,
    threshold: float,
    impostors: int,
    rates: Sequence[float] = RATES,
) -> RejectCurve:
    """FNMR of genuine pairs at a threshold that is known, while those of lowest quality are rejected.

    Args:
        genuine: ``(G,)`` scores of genuine pairs.
        quality: ``(G,)``.
        threshold: accept at or above.
        impostors: how many the threshold rests on.
        rates: shares to reject.
    """
    shares = np.asarray(rates, dtype=np.float64)
    errors = (np.asarray(genuine) < threshold).astype(np.float64)
    fnmr = _mean_of_kept(errors, np.asarray(quality, dtype=np.float64), shares)
    return RejectCurve(shares, fnmr, np.full(len(shares), threshold), impostors)


@dataclass(frozen=True)
class RejectIntervals:
    """95 % intervals of a curve with a fixed threshold.

    Attributes:
        low: ``(R,)`` of FNMR at each rate.
        high: ``(R,)``.
        area: of ``partial_area`` to each end.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    area: dict[float, Interval]


def reject_intervals(
    genuine: ArrayLike,
    quality: ArrayLike,
    replicates: Iterable[tuple[float, NDArray[np.floating]]],
    *,
    rates: Sequence[float] = RATES,
    ends: Sequence[float] = (0.2, 0.95),
) -> RejectIntervals:
    """Percentile intervals of a curve and of the areas below it.

    Args:
        genuine: ``(G,)`` scores of genuine pairs.
        quality: ``(G,)``.
        replicates: of the bootstrap: the highest score that is not accepted, and ``(G,)`` weights.
        rates: shares rejected, rising from 0.
        ends: to which the areas reach; each one of the rates.
    """
    shares = np.asarray(rates, dtype=np.float64)
    drawn = resampled_curves(genuine, quality, replicates, rates=rates)
    drawn = drawn[~np.isnan(drawn[:, 0])]
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    areas = {}
    for end in ends:
        inside = shares <= end + 1e-9
        areas[end] = percentile_interval(
            np.array([trapezoid(shares[inside], curve[inside]) / end for curve in drawn])
        )
    return RejectIntervals(low, high, areas)


def resampled_curves(
    genuine: ArrayLike,
    quality: ArrayLike,
    replicates: Iterable[tuple[float, NDArray[np.floating]]],
    *,
    rates: Sequence[float] = RATES,
) -> NDArray[np.float64]:
    """FNMR by the share rejected in each replicate of the bootstrap, at the replicate's own threshold.

    Args:
        genuine: ``(G,)`` scores of genuine pairs.
        quality: ``(G,)``.
        replicates: B of them: the highest score that is not accepted, and ``(G,)`` weights.
        rates: R shares of the weight rejected, rising from 0.

    Returns:
        ``(B, R)``; a row of NaN where a replicate has no genuine pair, as a tiny set may.
    """
    scores, ranks = np.asarray(genuine, dtype=np.float64), np.asarray(quality, dtype=np.float64)
    order = np.argsort(ranks, kind="stable")
    scores, ranks = scores[order], ranks[order]
    starts = np.flatnonzero(np.r_[True, ranks[1:] != ranks[:-1]])
    shares = np.asarray(rates, dtype=np.float64)
    curves = []
    for limit, given in replicates:
        weights = np.asarray(given, dtype=np.float64)[order]
        if not weights.any():
            curves.append(np.full(len(shares), np.nan))
            continue
        # Weight and errors rejected at each end of a tie; within a tie they grow together.
        gone = np.concatenate([[0.0], np.cumsum(np.add.reduceat(weights, starts))])
        wrong = np.concatenate([[0.0], np.cumsum(np.add.reduceat(weights * (scores <= limit), starts))])
        rejected = shares * gone[-1]
        curves.append((wrong[-1] - np.interp(rejected, gone, wrong)) / (gone[-1] - rejected))
    return np.array(curves).reshape(-1, len(shares))


def resampled_fmr_limits(
    scores: ArrayLike,
    same: ArrayLike,
    subjects: NDArray[np.integer] | None,
    fmr: float,
    *,
    replicates: int = 500,
    seed: int = 0,
) -> Iterator[tuple[float, NDArray[np.float32]]]:
    """What ``reject_intervals`` asks for, from a benchmark's pairs; see ``resample.pair_weights``."""
    values, flags = check_pairs(np.asarray(scores, dtype=np.float64), same)
    rows = np.flatnonzero(~flags)[np.argsort(-values[~flags], kind="stable")]
    for weights in pair_weights(flags, subjects, replicates=replicates, seed=seed):
        running = np.cumsum(weights[rows], dtype=np.float64)
        place = int(np.searchsorted(running, fmr * running[-1] + 1e-9, side="right"))
        yield (float(values[rows[place]]) if place < len(rows) else float("-inf")), weights[flags]


def _mean_of_kept(
    errors: NDArray[np.float64], quality: NDArray[np.float64], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean error of what is left when each share of lowest quality is gone; ties by their mean error."""
    order = np.argsort(quality, kind="stable")
    _, group = np.unique(quality[order], return_inverse=True)
    # Every member of a tie stands for the tie's mean.
    means = np.bincount(group, errors[order]) / np.bincount(group)
    left = np.concatenate([np.cumsum(means[group][::-1])[::-1], [0.0]])
    gone = _rejected_count(len(errors), shares)
    # Sums of means that are exact in theory: rounding may leave −1e-17 where no error is left.
    return np.asarray(np.maximum(left[gone], 0.0) / (len(errors) - gone), dtype=np.float64)


def _rejected_count(pairs: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many pairs a share rejects: rounded down, and one pair is always left."""
    return np.minimum(np.floor(shares * pairs + 1e-9).astype(np.int64), pairs - 1)


def _kept_by_rank(quality: NDArray[np.float64], share: float) -> NDArray[np.bool_]:
    """Impostors left at a rate; a tie that the rate cuts through is kept whole, which can only raise the threshold."""
    gone = int(_rejected_count(len(quality), np.array([share]))[0])
    kept: NDArray[np.bool_] = quality >= np.sort(quality)[gone]
    return kept


def oracle_quality(scores: ArrayLike, same: ArrayLike) -> NDArray[np.float64]:
    """The best quality there can be for error versus reject: each pair's own score as its quality.

    It rejects the genuine pairs of lowest similarity first, so that every rejected pair is an error while any is
    left.
    """
    return np.asarray(scores, dtype=np.float64)


def partial_area(curve: RejectCurve, end: float) -> float:
    """Area below the curve from no rejection to ``end``, divided by ``end``: the mean FNMR over those rates.

    Trapezoids between the rates; the value at ``end`` is interpolated.

    Raises:
        ValueError: the curve does not reach ``end``.
    """
    if not 0 < end <= curve.rejected[-1] + 1e-9 or curve.rejected[0] != 0:
        raise ValueError(
            f"the curve runs from {curve.rejected[0]} to {curve.rejected[-1]}, not from 0 to {end}"
        )
    inside = curve.rejected < end
    x = np.append(curve.rejected[inside], end)
    y = np.append(curve.fnmr[inside], np.interp(end, curve.rejected, curve.fnmr))
    return trapezoid(x, y) / end


def normalized_area(fnmr: ArrayLike, rates: Sequence[float], end: float) -> NDArray[np.float64]:
    """``partial_area`` divided by ``random_area``: 1 where a quality gains nothing, lower is better.

    Args:
        fnmr: ``(…, R)`` of one curve or of many.
        rates: R shares rejected, rising from 0; ``end`` is one of them.
        end: to which the area reaches.

    Returns:
        ``(…)``; NaN for a curve without an error to reject.

    Raises:
        ValueError: the rates do not begin at 0, or ``end`` is none of them.
    """
    shares, curves = np.asarray(rates, dtype=np.float64), np.asarray(fnmr, dtype=np.float64)
    inside = (shares > 0) & (shares <= end + 1e-9)
    if shares[0] != 0 or not inside.any() or abs(shares[inside][-1] - end) > 1e-9:
        raise ValueError(f"{end} is none of the rates, which must begin at 0 and be above 0 after that")
    count = int(inside.sum()) + 1
    means = (curves[..., 1:count] + curves[..., : count - 1]) / 2
    without = curves[..., 0]
    errors = np.where(without > 0, without, np.nan)
    return np.asarray(np.sum(means * np.diff(shares[:count]), axis=-1) / end / errors)


def random_area(curve: RejectCurve) -> float:
    """What ``partial_area`` is for a quality that says nothing: FNMR stays where it was."""
    return float(curve.fnmr[0])
