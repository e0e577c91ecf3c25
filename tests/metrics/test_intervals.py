from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from facerts.metrics.intervals import percentile_interval


def test_the_interval_contains_the_central_share() -> None:
    values = np.random.default_rng(0).permutation(np.arange(1001.0))
    assert percentile_interval(values) == pytest.approx((25.0, 975.0))
    assert percentile_interval(values, 0.5) == pytest.approx((250.0, 750.0))


def test_the_interval_of_normal_values_matches_the_textbook() -> None:
    values = np.random.default_rng(1).normal(size=200_000)
    assert percentile_interval(values) == pytest.approx((norm.ppf(0.025), norm.ppf(0.975)), abs=0.02)
