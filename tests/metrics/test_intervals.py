from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import sem, t

from facerts.metrics.intervals import mean_interval, percentile_interval


def test_the_interval_contains_the_central_share() -> None:
    values = np.random.default_rng(0).permutation(np.arange(1001.0))
    assert percentile_interval(values) == pytest.approx((25.0, 975.0))
    assert percentile_interval(values, 0.5) == pytest.approx((250.0, 750.0))


@pytest.mark.parametrize("count", range(2, 11))
def test_the_interval_of_a_mean_is_students(count: int) -> None:
    values = np.random.default_rng(count).normal(3.0, 2.0, count)
    expected = t.interval(0.95, count - 1, loc=values.mean(), scale=sem(values))
    assert mean_interval(values) == pytest.approx(expected)


def test_the_interval_of_shares_has_none_that_cannot_be() -> None:
    shares = [0.55, 0.90, 0.95]
    low, high = mean_interval(shares)
    assert low > 0
    assert high > 1
    assert mean_interval(shares, of_shares=True) == (low, 1.0)
    assert mean_interval([1 - share for share in shares], of_shares=True) == pytest.approx((0.0, 1 - low))


@pytest.mark.parametrize("count", [0, 1, 11])
def test_the_mean_of_other_numbers_of_values_has_no_interval(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} values"):
        mean_interval(np.zeros(count))
