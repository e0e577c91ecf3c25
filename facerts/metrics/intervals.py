"""Percentile intervals; see ``resample`` for the resampling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float]


def percentile_interval(values: NDArray[np.float64], level: float = 0.95) -> Interval:
    """The interval with the central ``level`` of the values."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
