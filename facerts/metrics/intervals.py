"""Intervals of resampled numbers (``resample`` does the resampling), and of the mean of a few training runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Interval = tuple[float, float]


def percentile_interval(values: NDArray[np.float64], level: float = 0.95) -> Interval:
    """The interval with the central ``level`` of the values."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


# 97.5th percentiles of Student's t, for 1 to 9 degrees of freedom.
_STUDENT = (
    12.70620474,
    4.30265273,
    3.18244631,
    2.77644511,
    2.57058184,
    2.44691185,
    2.36462425,
    2.30600414,
    2.26215716,
)


def mean_interval(values: ArrayLike, *, of_shares: bool = False) -> Interval:
    """Student's 95 % interval of the mean of 2 to 10 independent values, such as those of training runs.

    Args:
        values: the values.
        of_shares: the values are shares, so the interval is cut off at 0 and 1, which their mean cannot pass.

    Raises:
        ValueError: fewer than 2 or more than 10 values.
    """
    runs = np.asarray(values, dtype=np.float64)
    if not 2 <= len(runs) <= len(_STUDENT) + 1:
        raise ValueError(f"{len(runs)} values: an interval of their mean needs 2 to {len(_STUDENT) + 1}")
    margin = _STUDENT[len(runs) - 2] * runs.std(ddof=1) / np.sqrt(len(runs))
    low, high = float(runs.mean() - margin), float(runs.mean() + margin)
    return (max(low, 0.0), min(high, 1.0)) if of_shares else (low, high)


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
