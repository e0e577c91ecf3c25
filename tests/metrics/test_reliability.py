from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, spearmanr

from facerts.metrics.intervals import wilson
from facerts.metrics.reliability import reliability, spearman

few = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=25)


@given(few)
def test_rank_correlation_matches_scipy(pairs):
    first, second = zip(*pairs, strict=True)
    if len(set(first)) > 1 and len(set(second)) > 1:
        assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic, abs=1e-12)
    else:
        assert spearman(first, second) == 0.0


@given(st.integers(0, 30), st.integers(1, 30))
def test_the_wilson_interval_matches_scipy(hits, extra):
    trials = hits + extra
    low, high = wilson(np.array([hits / trials]), np.array([trials]))
    expected = binomtest(hits, trials).proportion_ci(method="wilson")
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_bins_are_of_equal_size_and_never_separate_ties():
    quality = np.arange(100.0)
    found = reliability(quality, quality < 25, bins=4)
    assert found.pairs.tolist() == [25] * 4
    assert found.error.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert found.quality.tolist() == [12.0, 37.0, 62.0, 87.0]
    tied = reliability([1.0] * 90 + [2.0] * 10, [True] * 9 + [False] * 91, bins=10)
    assert tied.pairs.tolist() == [90, 10]
    assert tied.error.tolist() == [0.1, 0.0]
    assert reliability([5.0] * 3, [True, False, False]).pairs.tolist() == [3]


def test_invalid_input_is_refused():
    with pytest.raises(ValueError, match="finite"):
        spearman([1.0, np.nan], [1.0, 2.0])
    with pytest.raises(ValueError, match="quality and an error"):
        reliability([], [])
