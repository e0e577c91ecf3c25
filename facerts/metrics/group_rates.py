"""How the rates of groups of images differ: shares of accepted images, FNMR and FMR.

Errors of a group are those of pairs whose two images are both in the group (NIST IR 8280, FRVT Part 3: Demographic
Effects, 2019; ISO/IEC 19795-10:2024). Intervals resample people where they are known, as a person's images and pairs
are not independent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from facerts.metrics.all_pairs import AllPairs
from facerts.metrics.intervals import Interval, resampled_rate_interval, subject_counts, wilson

REPLICATES = 1000
# A replicate takes a pass over all images or accepted pairs, so fewer are computed for large sets.
REPLICATES_OF_MANY, MANY = 200, 100_000

Integers = NDArray[np.integer]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class GroupRates:
    """A rate in each of K groups.

    Attributes:
        events: ``(K,) int64`` images or pairs that are counted.
        trials: ``(K,) int64`` out of these.
        people: ``(K,) int64`` people with trials; None if people are unknown.
        rate: ``(K,)`` ``events / trials``; NaN without trials.
        low: ``(K,)`` lower end of the 95% interval; NaN without trials.
        high: ``(K,)`` upper end.
        replicates: ``(R, K)`` resampled rates; NaN where a replicate has no trials.
    """

    events: NDArray[np.int64]
    trials: NDArray[np.int64]
    people: NDArray[np.int64] | None
    rate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    replicates: NDArray[np.float64]

    def interval(self, group: int) -> Interval:
        """The 95% interval of a group's rate."""
        return float(self.low[group]), float(self.high[group])

    def measured(self, group: int) -> tuple[float, Interval] | tuple[None, None]:
        """A group's rate and its 95% interval; None without trials."""
        return (float(self.rate[group]), self.interval(group)) if self.trials[group] else (None, None)


@dataclass(frozen=True)
class Extremes:
    """The groups with the worst and the best rate, and how far apart they are.

    The groups are chosen by their rates, and of many groups some differ much by chance. The intervals cover this: they
    hold for all pairs of groups at the same time (the bootstrap of the largest studentized deviation; Westfall and
    Young, "Resampling-Based Multiple Testing", 1993).

    Attributes:
        difference_ci95: its simultaneous 95% bootstrap interval.
        ratio: rate of the worst over that of the best; None if that is 0.
        ratio_ci95: its simultaneous 95% bootstrap interval, from the logarithms of the rates; None if either group has
            a rate of 0 in more than 2.5% of the replicates.
        over_mean: rate of the worst over the geometric mean of all groups' rates (NIST IR 8429, FRVT Part 8:
            Summarizing Demographic Differentials, 2022); None if one of them is 0.
    """

    worst: int
    best: int
    difference: float
    difference_ci95: Interval
    ratio: float | None
    ratio_ci95: Interval | None
    over_mean: float | None


def share_by_group(
    events: Flags,
    group: Integers,
    groups: int,
    people: Integers | None = None,
    *,
    replicates: int | None = None,
    seed: int = 0,
) -> GroupRates:
    """The share of each group's images or pairs that are counted, such as accepted images.

    With people, intervals are percentiles of the bootstrap over people, and extend to 3 / n at shares of 0 and 1, n
    people; otherwise they are Wilson's, and replicates resample the images of each group.

    Args:
        events: ``(N,) bool`` what is counted.
        group: ``(N,)`` group of each, 0 … K − 1; −1 for none.
        people: ``(N,)`` person of each; None if unknown.
        replicates: number of replicates; by default 1,000, or 200 for more than 100,000 images.
    """
    inside = group >= 0
    place, counted = np.asarray(group)[inside], np.asarray(events, dtype=bool)[inside]
    hits = np.bincount(place[counted], minlength=groups)
    trials = np.bincount(place, minlength=groups)
    if people is None:
        number = replicates or REPLICATES
        rate = _divided(hits, trials)
        random = np.random.default_rng(seed)
        drawn = random.binomial(trials, np.nan_to_num(rate), (number, groups))
        low, high = np.full((2, groups), np.nan)
        there = trials > 0
        low[there], high[there] = wilson(rate[there], trials[there])
        return GroupRates(hits, trials, None, rate, low, high, _divided(drawn, trials))
    cells = _Cells.of(people, inside, place)
    cell_hits = np.bincount(cells.of_row[counted], minlength=len(cells.sizes))

    def resample(counts: NDArray[np.float32]) -> NDArray[np.float64]:
        weights = counts[cells.person].astype(np.float64)
        drawn_hits, drawn_trials = (
            np.bincount(cells.group, weights * values, minlength=groups) for values in (cell_hits, cells.sizes)
        )
        return _divided(drawn_hits, drawn_trials)

    number = replicates or (REPLICATES if len(place) <= MANY else REPLICATES_OF_MANY)
    present = np.bincount(cells.group, minlength=groups)
    return _rates(hits, trials, present, present, resample, cells.people, number, seed)


def fnmr_by_group(
    pairs: AllPairs,
    group: Integers,
    groups: int,
    threshold: float,
    *,
    kept: Flags | None = None,
    replicates: int | None = None,
    seed: int = 0,
) -> GroupRates:
    """FNMR of the genuine pairs whose two images are both in a group, by group; see ``share_by_group``.

    If no pair fails, the interval extends to 3 / n (the rule of three), n people. ``group`` ``(N,)`` is that of each
    image, 0 … K − 1, −1 for none; pairs at or above ``threshold`` match; ``kept`` ``(N,) bool`` are the images that are
    not rejected, None for all.
    """
    of_pair = _group_of_pairs(pairs.genuine_pairs, _without(group, kept))
    people = pairs.people[pairs.genuine_pairs[:, 0]]
    return share_by_group(pairs.genuine < threshold, of_pair, groups, people, replicates=replicates, seed=seed)


def fmr_by_group(
    pairs: AllPairs,
    group: Integers,
    groups: int,
    threshold: float,
    *,
    kept: Flags | None = None,
    replicates: int | None = None,
    seed: int = 0,
) -> GroupRates:
    """FMR of the impostor pairs whose two images are both in a group, by group; the number of pairs is exact.

    If no pair matches, the interval extends to 3 / n, where n is the number of pairs of people: a bound if these are
    independent, and too low if a few people resemble many others. The arguments are as for ``fnmr_by_group``, but the
    threshold must lie in the tail, as below it single pairs are not kept. Replicates are by default 1,000, or 200 for
    more than 100,000 images or matching pairs.
    """
    if not in_tail(pairs, threshold):
        raise ValueError(f"the threshold {threshold:g} lies below the tail of the impostor pairs")
    remaining = _without(group, kept)
    inside = remaining >= 0
    cells = _Cells.of(pairs.people, inside, remaining[inside])
    matching = pairs.tail_pairs[pairs.tail >= threshold]
    of_pair = _group_of_pairs(matching, remaining)
    matching, of_pair = matching[of_pair >= 0], of_pair[of_pair >= 0]
    # Cells number people without gaps, and only those with an image in a group.
    number_of = np.full(len(pairs.people), -1)
    number_of[inside] = cells.person[cells.of_row]
    first, second = (number_of[matching[:, side]] for side in (0, 1))

    def impostors(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        total, squares = (np.bincount(cells.group, values, minlength=groups) for values in (weights, weights**2))
        return (total**2 - squares) / 2

    def resample(counts: NDArray[np.float32]) -> NDArray[np.float64]:
        weights = (counts[first] * counts[second]).astype(np.float64)
        drawn = np.bincount(of_pair, weights, minlength=groups)
        return _divided(drawn, impostors(counts[cells.person].astype(np.float64) * cells.sizes))

    few = max(len(matching), int(inside.sum())) <= MANY
    present = np.bincount(cells.group, minlength=groups)
    return _rates(
        np.bincount(of_pair, minlength=groups),
        np.rint(impostors(cells.sizes.astype(np.float64))).astype(np.int64),
        present,
        present * (present - 1) // 2,
        resample,
        cells.people,
        replicates or (REPLICATES if few else REPLICATES_OF_MANY),
        seed,
    )


def in_tail(pairs: AllPairs, threshold: float) -> bool:
    """Whether every impostor pair at or above a threshold is kept, so that FMR by group can be measured."""
    return len(pairs.tail) == pairs.impostors or (len(pairs.tail) > 0 and threshold >= float(pairs.tail[-1]))


def extremes(rates: GroupRates, comparable: Flags, *, high_is_worse: bool) -> Extremes | None:
    """The worst and the best of the groups that are large enough, ``comparable`` ``(K,) bool``; None of fewer than two.

    ``high_is_worse`` is True for error rates, False for shares of accepted images.
    """
    chosen = np.flatnonzero(comparable & (rates.trials > 0))
    if len(chosen) < 2:
        return None
    order = chosen[np.argsort(rates.rate[chosen], kind="stable")]
    best, worst = (int(order[0]), int(order[-1])) if high_is_worse else (int(order[-1]), int(order[0]))
    rate, replicates = rates.rate[chosen], rates.replicates[:, chosen]
    sides = int(np.flatnonzero(chosen == worst)[0]), int(np.flatnonzero(chosen == best)[0])
    low, high = _simultaneous_interval(rate, replicates, *sides)
    logs, log_replicates = (
        np.log(values, out=np.full(values.shape, np.nan), where=values > 0) for values in (rate, replicates)
    )
    ratio_ci95 = None
    if (np.isnan(log_replicates[:, sides]).mean(axis=0) <= 0.025).all() and (rate[list(sides)] > 0).all():
        ends = _simultaneous_interval(logs, log_replicates, *sides)
        ratio_ci95 = float(np.exp(ends[0])), float(np.exp(ends[1]))
    return Extremes(
        worst,
        best,
        float(rates.rate[worst] - rates.rate[best]),
        (max(low, -1.0), min(high, 1.0)),
        float(rates.rate[worst] / rates.rate[best]) if rates.rate[best] > 0 else None,
        ratio_ci95,
        float(np.exp(logs[sides[0]] - logs.mean())) if (rate > 0).all() else None,
    )


@dataclass(frozen=True)
class _Cells:
    """Images by person and group: C cells, one for each person in each group.

    ``person``, numbered without gaps, ``group`` and ``sizes`` are of the cells; ``of_row`` is the cell of each image.
    """

    person: NDArray[np.int64]
    group: NDArray[np.int64]
    sizes: NDArray[np.int64]
    of_row: NDArray[np.int64]
    people: int

    @staticmethod
    def of(people: Integers, inside: Flags, group: Integers) -> _Cells:
        names, person = np.unique(np.asarray(people)[inside], return_inverse=True)
        width = int(group.max(initial=0)) + 1
        codes, of_row = np.unique(person * width + group, return_inverse=True)
        return _Cells(codes // width, codes % width, np.bincount(of_row), of_row, len(names))


def _rates(
    events: NDArray[np.int64],
    trials: NDArray[np.int64],
    people: NDArray[np.int64],
    units: NDArray[np.int64],
    resample: Callable[[NDArray[np.float32]], NDArray[np.float64]],
    number: int,
    replicates: int,
    seed: int,
) -> GroupRates:
    """Rates with intervals from resampled people; ``units`` ``(K,)`` are independent, for the rule of three."""
    rate = _divided(events, trials)
    drawn = np.array([resample(counts) for counts in subject_counts(number, replicates, seed)] if number else [])
    drawn = drawn.reshape(-1, len(trials))
    ends = np.full((2, len(trials)), np.nan)
    for group in np.flatnonzero(trials):
        values = drawn[:, group]
        ends[:, group] = resampled_rate_interval(values[~np.isnan(values)], float(rate[group]), int(units[group]))
    return GroupRates(events, trials, people, rate, ends[0], ends[1], drawn)


def _without(group: Integers, kept: Flags | None) -> NDArray[np.int64]:
    """The group of each image; −1 for rejected ones."""
    return np.where(True if kept is None else kept, group, -1).astype(np.int64)


def _group_of_pairs(pairs: Integers, group: NDArray[np.int64]) -> NDArray[np.int64]:
    """``(P,)`` the group that both images of each pair are in; −1 for none."""
    first, second = group[pairs[:, 0]], group[pairs[:, 1]]
    return np.where(first == second, first, -1)


def _divided(events: NDArray[np.number], trials: NDArray[np.number]) -> NDArray[np.float64]:
    """Shares; NaN without trials."""
    shares = np.full(np.broadcast_shapes(events.shape, trials.shape), np.nan)
    np.divide(events, trials, out=shares, where=trials > 0)
    return shares


def _simultaneous_interval(
    values: NDArray[np.float64], replicates: NDArray[np.float64], first: int, second: int
) -> Interval:
    """The 95% interval of the difference of two values that holds for all pairs of ``(K,)`` values at the same time."""
    deviations = replicates - values
    largest = np.zeros(len(replicates))
    error = 0.0
    for one, other in combinations(range(len(values)), 2):
        apart = deviations[:, one] - deviations[:, other]
        known = ~np.isnan(apart)
        spread = float(apart[known].std()) if known.any() else 0.0
        if spread > 0:
            largest[known] = np.maximum(largest[known], np.abs(apart[known]) / spread)
        if {one, other} == {first, second}:
            error = spread
    half = float(np.quantile(largest, 0.95)) * error
    difference = float(values[first] - values[second])
    return difference - half, difference + half
