"""Percentile intervals; see ``resample`` for the resampling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float]


def percentile_interval(values: NDArray[np.float64], level: float = 0.95) -> Interval:
    """The interval with the central ``level`` of the values."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def resampled_rate_interval(values: NDArray[np.float64], rate: float, units: int) -> Interval:
    """The 95 % interval of a rate from resampled rates; at a rate of 0 or 1 it extends to the rule of three.

    Resampling says little about what never happened: in n independent trials a rate of 3 / n would still be missed with
    a probability of 5 % (Hanley and Lippman-Hand, JAMA 249, 1983).

    Args:
        values: ``(R,)`` resampled rates.
        rate: the rate of the sample.
        units: n, the number of independent units, such as people.
    """
    low, high = percentile_interval(values) if len(values) else (rate, rate)
    margin = min(3 / max(units, 1), 1.0)
    if rate == 0:
        return low, max(high, margin)
    return (min(low, 1 - margin), high) if rate == 1 else (low, high)
