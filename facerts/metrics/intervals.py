"""Percentile bootstrap intervals, seeded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float]
REPLICATES = 1000


def bootstrap(
    statistic: Callable[..., float],
    groups: Sequence[int],
    *,
    replicates: int = REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Interval of a statistic under resampling within groups.

    Args:
        statistic: from an array of row numbers per group to a number.
        groups: rows of each group; every group is resampled with replacement to its own size, so that the
            numbers of genuine and impostor pairs (or faces and non-faces) stay what they are.
        replicates: resamples.
        level: of confidence.
        seed: of the resampling.
    """
    random = np.random.default_rng(seed)
    values = [statistic(*(random.integers(0, rows, rows) for rows in groups)) for _ in range(replicates)]
    return percentile_interval(np.array(values), level)


def percentile_interval(values: NDArray[np.float64], level: float = 0.95) -> Interval:
    """The central ``level`` of the values."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
