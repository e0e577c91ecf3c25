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
    assert (low[0], high[0]) == pytest.approx(wilson_of(hits, trials), abs=1e-12)


def wilson_of(hits, trials):
    interval = binomtest(hits, trials).proportion_ci(method="wilson")
    return interval.low, interval.high


def test_bins_are_of_equal_size_and_never_separate_ties():
    quality = np.arange(100.0)
    found = reliability(quality, quality < 25, bins=4)
    assert found.error.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert (found.low[0], found.high[0]) == pytest.approx(wilson_of(25, 25))
    tied = reliability([1.0] * 90 + [2.0] * 10, [True] * 9 + [False] * 91, bins=10)
    assert tied.error.tolist() == [0.1, 0.0]
    assert (tied.low[0], tied.high[0]) == pytest.approx(wilson_of(9, 90))
    assert reliability([5.0] * 3, [True, False, False]).error.tolist() == [1 / 3]


def test_invalid_input_is_refused():
    with pytest.raises(ValueError, match="finite"):
        spearman([1.0, np.nan], [1.0, 2.0])
    with pytest.raises(ValueError, match="quality and an error"):
        reliability([], [])
