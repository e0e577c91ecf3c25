"""The bootstrap: how often each pair counts in a replicate; and intervals, of resampled and of other numbers.

Pairs that share a person are not independent, so if people are known, they are sampled with replacement: a genuine pair
counts as often as its person was sampled, an impostor pair as often as the product of both. Otherwise pairs are
sampled, genuine and impostor pairs separately. Resampling people gives wider and more accurate intervals (Fogliato et
al., "Confidence intervals for error rates in 1:1 matching tasks", IJCV 2024).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Interval = tuple[float, float]
ResamplingUnit = Literal["subjects", "pairs"]
Weights = NDArray[np.float32]
Z95 = 1.959963984540054


def percentile_interval(values: NDArray[np.float64]) -> Interval:
    """The interval with the central 95% of the values."""
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


# A rate that is summed from parts may miss 0 or 1 by this much.
_ROUNDING = 1e-12


def resampled_rate_interval(values: NDArray[np.float64], rate: float, units: int) -> Interval:
    """The 95% interval of a rate from ``(R,)`` resampled rates; at a rate of 0 or 1 it extends to the rule of three.

    Resampling says little about what never happened: in n independent trials a rate of 3 / n would still be missed with
    a probability of 5% (Hanley and Lippman-Hand, JAMA 249, 1983). ``units`` are these n, such as people.
    """
    low, high = percentile_interval(values) if len(values) else (rate, rate)
    margin = min(3 / max(units, 1), 1.0)
    if rate <= _ROUNDING:
        return low, max(high, margin)
    return (min(low, 1 - margin), high) if rate >= 1 - _ROUNDING else (low, high)


def wilson(rate: NDArray[np.float64], trials: NDArray[np.integer]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Wilson's 95% score interval of a proportion (JASA 22, 1927)."""
    count = trials.astype(np.float64)
    center = (rate + Z95**2 / (2 * count)) / (1 + Z95**2 / count)
    half = Z95 / (1 + Z95**2 / count) * np.sqrt(rate * (1 - rate) / count + Z95**2 / (4 * count**2))
    # Rounding errors must not give an interval that excludes its own rate at 0 or 1.
    return np.minimum(np.maximum(center - half, 0.0), rate), np.maximum(np.minimum(center + half, 1.0), rate)


class Estimate(NamedTuple):
    """A value and its bootstrap replicates, ``(B,)``; NaN where undefined, and empty if there are none."""

    value: float
    replicates: NDArray[np.float64]

    def minus(self, other: Estimate) -> Estimate:
        """The paired difference: what makes a replicate hard for both cancels out."""
        return Estimate(self.value - other.value, self.replicates - other.replicates)

    def over(self, other: Estimate) -> Estimate:
        """The ratio in each replicate; NaN where the other is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            replicates = np.where(other.replicates > 0, self.replicates / other.replicates, np.nan)
        return Estimate(self.value / other.value if other.value > 0 else float("nan"), replicates)

    def interval(self) -> Interval | None:
        """The 95% interval of the replicates; None if it is undefined in all of them."""
        finite = self.replicates[np.isfinite(self.replicates)]
        return percentile_interval(finite) if len(finite) else None


def mean_estimate(estimates: Sequence[Estimate]) -> Estimate:
    """Mean of estimates, e.g. of one quality on several recognizers, in each replicate."""
    return Estimate(
        math.fsum(estimate.value for estimate in estimates) / len(estimates),
        np.mean([estimate.replicates for estimate in estimates], axis=0),
    )


def pair_subjects(labels: NDArray[np.integer] | None, pairs: NDArray[np.integer]) -> NDArray[np.int64] | None:
    """``(P, 2)`` subjects of each pair from ``(N,)`` labels of images; None without labels."""
    return None if labels is None else np.asarray(labels[pairs], dtype=np.int64)


def subject_counts(subjects: int, replicates: int, seed: int) -> Iterator[NDArray[np.float32]]:
    """For each replicate, how often each of ``subjects`` people is sampled, ``(subjects,)``."""
    random = np.random.default_rng(seed)
    for _ in range(replicates):
        counts = np.bincount(random.integers(0, subjects, subjects), minlength=subjects)
        yield counts.astype(np.float32)


def pair_weights(
    same: ArrayLike, subjects: NDArray[np.integer] | None, *, replicates: int, seed: int = 0
) -> Iterator[Weights]:
    """For each replicate, the weights ``(P,)`` of the pairs.

    ``subjects`` ``(P, 2)`` are those of each pair, to resample subjects; None to resample pairs.
    """
    flags = np.asarray(same, dtype=bool)
    if subjects is None:
        random = np.random.default_rng(seed)
        rows = np.flatnonzero(flags), np.flatnonzero(~flags)
        for _ in range(replicates):
            weights = np.zeros(len(flags), dtype=np.float32)
            for of_class in rows:
                drawn = random.integers(0, len(of_class), len(of_class))
                weights[of_class] = np.bincount(drawn, minlength=len(of_class))
            yield weights
        return
    first, second, people = check_subjects(flags, subjects)
    for counts in subject_counts(people, replicates, seed):
        weights = counts[first]
        weights *= np.where(flags, np.float32(1), counts[second])
        yield weights


def check_subjects(
    same: NDArray[np.bool_], subjects: NDArray[np.integer]
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """First and second subjects of pairs, numbered without gaps, and their number; they must agree with ``same``."""
    people = np.asarray(subjects)
    if people.shape != (len(same), 2):
        raise ValueError(f"subjects are {people.shape}, but there are {len(same)} pairs")
    wrong = np.flatnonzero((people[:, 0] == people[:, 1]) != same)
    if len(wrong):
        kind = "genuine" if same[wrong[0]] else "impostor"
        raise ValueError(f"pair {wrong[0]} is {kind}, but its subjects are {people[wrong[0]].tolist()}")
    names = np.unique(people)
    first, second = (np.searchsorted(names, people[:, side]).astype(np.int32) for side in (0, 1))
    return first, second, len(names)
