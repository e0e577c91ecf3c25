"""Error versus reject: how the false non-match rate falls as the pairs of lowest quality are rejected.

Fig. 8 of the RTS paper plots FNMR at FMR 1e-3 against the share of pairs rejected. A pair's quality is the lower
quality of its two images. Two conventions are in use, and both are supported: a *fixed* threshold, chosen once on all
impostor pairs (as in a deployed system), and one chosen *per rate* on the remaining impostor pairs. Pairs of equal
quality cannot be ordered, so if a rate falls within a tie, the expected value over a random order within the tie is
used.
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
    """The quality of each pair, ``(P,)``.

    Args:
        quality: ``(N,)`` quality of each image.
        pairs: ``(P, 2)`` row numbers.
        combine: "min", a pair is as good as its worse image (the usual convention); "mean"; or "product", for positive
            qualities.

    Raises:
        ValueError: "product" with qualities that are not all positive, whose order would be meaningless.
    """
    both = np.asarray(quality, dtype=np.float64)[pairs]
    if combine == "product" and (both <= 0).any():
        raise ValueError(
            "the product of two qualities needs both to be positive; combine them by min or mean"
        )
    combined: NDArray[np.float64] = {"min": both.min, "mean": both.mean, "product": both.prod}[combine](
        axis=1
    )
    return combined


@dataclass(frozen=True)
class RejectCurve:
    """FNMR by the share of pairs rejected.

    Attributes:
        rejected: ``(R,)`` shares of pairs rejected, ascending from 0.
        fnmr: ``(R,)`` FNMR of the remaining pairs.
        threshold: ``(R,)`` match threshold; constant with the convention "fixed".
        impostors: number of impostor pairs behind the threshold, before any is rejected.
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
        quality: ``(P,)`` quality of each pair, higher is better; see ``pair_quality``.
        fmr: false match rate at which the threshold is chosen.
        convention: "fixed" or "per_rate", see the module.
        rates: shares to reject, in [0, 1). With "fixed" they are shares of the genuine pairs, the only ones that FNMR
            counts; with "per_rate" genuine and impostor pairs are both rejected at each rate.

    Raises:
        ValueError: as for ``check_pairs``, or a quality is not finite, or a rate is out of range.

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
        raise ValueError("rejection rates must lie in [0, 1)")
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
    """FNMR of genuine pairs at a known threshold, while those of lowest quality are rejected.

    Args:
        genuine: ``(G,)`` scores of genuine pairs.
        quality: ``(G,)`` quality of each genuine pair.
        threshold: pairs at or above it match.
        impostors: number of impostor pairs behind the threshold.
        rates: shares to reject.
    """
    shares = np.asarray(rates, dtype=np.float64)
    errors = (np.asarray(genuine) < threshold).astype(np.float64)
    fnmr = _mean_of_kept(errors, np.asarray(quality, dtype=np.float64), shares)
    return RejectCurve(shares, fnmr, np.full(len(shares), threshold), impostors)


@dataclass(frozen=True)
class RejectIntervals:
    """95 % intervals of a reject curve with a fixed threshold.

    Attributes:
        low: ``(R,)`` lower end for FNMR at each rate.
        high: ``(R,)`` upper end.
        area: interval of ``partial_area`` up to each end.
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
    """Percentile intervals of a reject curve and of the areas below it.

    Args:
        genuine: ``(G,)`` scores of genuine pairs.
        quality: ``(G,)`` quality of each genuine pair.
        replicates: bootstrap replicates: the highest score that is rejected, and weights ``(G,)``.
        rates: shares rejected, ascending from 0.
        ends: rates up to which areas are computed.
    """
    shares = np.asarray(rates, dtype=np.float64)
    curves = resampled_curves(genuine, quality, replicates, rates=rates)
    curves = curves[~np.isnan(curves[:, 0])]
    low, high = np.quantile(curves, [0.025, 0.975], axis=0)
    areas = {}
    for end in ends:
        inside = shares <= end + 1e-9
        areas[end] = percentile_interval(
            np.array([trapezoid(shares[inside], curve[inside]) / end for curve in curves])
        )
    return RejectIntervals(low, high, areas)


def resampled_curves(
    genuine: ArrayLike,
    quality: ArrayLike,
    replicates: Iterable[tuple[float, NDArray[np.floating]]],
    *,
    rates: Sequence[float] = RATES,
) -> NDArray[np.float64]:
    """FNMR by the share rejected for each bootstrap replicate, at the replicate's own threshold.

    Args:
        genuine: ``(G,)`` scores of genuine pairs.
        quality: ``(G,)`` quality of each genuine pair.
        replicates: B bootstrap replicates: the highest score that is rejected, and weights ``(G,)``.
        rates: R shares of the weight to reject, ascending from 0.

    Returns:
        ``(B, R)``; a row of NaN for a replicate without genuine pairs, which a tiny set may have.
    """
    scores, ranks = np.asarray(genuine, dtype=np.float64), np.asarray(quality, dtype=np.float64)
    order = np.argsort(ranks, kind="stable")
    scores, ranks = scores[order], ranks[order]
    starts = np.flatnonzero(np.r_[True, ranks[1:] != ranks[:-1]])
    shares = np.asarray(rates, dtype=np.float64)
    curves = []
    for limit, pair_weight in replicates:
        weights = np.asarray(pair_weight, dtype=np.float64)[order]
        if not weights.any():
            curves.append(np.full(len(shares), np.nan))
            continue
        # Cumulative weight and errors at the end of each tie; within a tie they grow proportionally.
        weight = np.concatenate([[0.0], np.cumsum(np.add.reduceat(weights, starts))])
        errors = np.concatenate([[0.0], np.cumsum(np.add.reduceat(weights * (scores <= limit), starts))])
        rejected = shares * weight[-1]
        curves.append((errors[-1] - np.interp(rejected, weight, errors)) / (weight[-1] - rejected))
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
    """Replicates for ``reject_intervals`` from a benchmark's pairs; see ``resample.pair_weights``."""
    values, flags = check_pairs(np.asarray(scores, dtype=np.float64), same)
    rows = np.flatnonzero(~flags)[np.argsort(-values[~flags], kind="stable")]
    for weights in pair_weights(flags, subjects, replicates=replicates, seed=seed):
        running = np.cumsum(weights[rows], dtype=np.float64)
        place = int(np.searchsorted(running, fmr * running[-1] + 1e-9, side="right"))
        yield (float(values[rows[place]]) if place < len(rows) else float("-inf")), weights[flags]


def _mean_of_kept(
    errors: NDArray[np.float64], quality: NDArray[np.float64], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean error of the remaining pairs after rejecting each share of lowest quality; ties by their mean error."""
    order = np.argsort(quality, kind="stable")
    _, group = np.unique(quality[order], return_inverse=True)
    # Every pair in a tie counts with the tie's mean error.
    means = np.bincount(group, errors[order]) / np.bincount(group)
    remaining = np.concatenate([np.cumsum(means[group][::-1])[::-1], [0.0]])
    rejected = _rejected_count(len(errors), shares)
    # Rounding errors may give −1e-17 where no error is left.
    return np.asarray(np.maximum(remaining[rejected], 0.0) / (len(errors) - rejected), dtype=np.float64)


def _rejected_count(pairs: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number of pairs that a share rejects: rounded down, and at least one pair is left."""
    return np.minimum(np.floor(shares * pairs + 1e-9).astype(np.int64), pairs - 1)


def _kept_by_rank(quality: NDArray[np.float64], share: float) -> NDArray[np.bool_]:
    """Impostors left at a rate; a tie at the rate is kept as a whole, which can only raise the threshold."""
    rejected = int(_rejected_count(len(quality), np.array([share]))[0])
    kept: NDArray[np.bool_] = quality >= np.sort(quality)[rejected]
    return kept


def oracle_quality(scores: ArrayLike, same: ArrayLike) -> NDArray[np.float64]:
    """The best possible quality for error versus reject: each pair's own similarity score.

    It rejects the genuine pairs of lowest similarity first, so that every rejected pair is an error as long as any
    error is left.
    """
    return np.asarray(scores, dtype=np.float64)


def partial_area(curve: RejectCurve, end: float) -> float:
    """Area below the curve from no rejection up to ``end``, divided by ``end``: the mean FNMR over those rates.

    Uses trapezoids between the rates; the value at ``end`` is interpolated.

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
    """``partial_area`` divided by ``random_area``: 1 for a useless quality, lower is better.

    Args:
        fnmr: ``(…, R)`` FNMR of one or more curves.
        rates: R shares rejected, ascending from 0; ``end`` is one of them.
        end: the rate up to which the area is computed.

    Returns:
        ``(…)``; NaN for a curve without errors.

    Raises:
        ValueError: the rates do not begin at 0, or ``end`` is not one of them.
    """
    shares, curves = np.asarray(rates, dtype=np.float64), np.asarray(fnmr, dtype=np.float64)
    inside = (shares > 0) & (shares <= end + 1e-9)
    if shares[0] != 0 or not inside.any() or abs(shares[inside][-1] - end) > 1e-9:
        raise ValueError(f"{end} is not one of the rates, which must begin at 0 and then be positive")
    count = int(inside.sum()) + 1
    means = (curves[..., 1:count] + curves[..., : count - 1]) / 2
    without = curves[..., 0]
    errors = np.where(without > 0, without, np.nan)
    return np.asarray(np.sum(means * np.diff(shares[:count]), axis=-1) / end / errors)


def random_area(curve: RejectCurve) -> float:
    """``partial_area`` of an uninformative quality: FNMR stays constant."""
    return float(curve.fnmr[0])
