import numpy as np
import pytest
from scipy.stats import kendalltau

from facerts.metrics.intervals import Estimate
from facerts.metrics.rank_consistency import kendall_tau, rank_consistency


@pytest.mark.parametrize("values", [3, 6, 1000])
def test_tau_is_that_of_scipy_with_ties_and_without(values):
    random = np.random.default_rng(values)
    first, second = random.integers(0, values, (2, 20, 9)).astype(float)
    found = kendall_tau(first, second)
    assert found.shape == (20,)
    np.testing.assert_allclose(
        found, [kendalltau(*row).statistic for row in zip(first, second, strict=True)], atol=1e-12
    )


def test_tau_leaves_out_what_is_undefined_and_needs_two_that_differ():
    nan = float("nan")
    assert kendall_tau([1, 2, nan, 4], [1, 3, 9, 2]) == pytest.approx(kendalltau([1, 2, 4], [1, 3, 2]).statistic)
    assert kendall_tau([1, 2, 3], [4, 5, 6]) == 1
    assert kendall_tau([1, 2, 3], [6, 5, 4]) == -1
    for same in ([], [1], [2, 2, 2], [1, nan, nan]):
        assert np.isnan(kendall_tau(same, list(range(len(same)))))


AREAS = {
    "one": {"a": 0.1, "b": 0.2, "c": 0.3, "own": 0.0},
    "two": {"c": 0.9, "b": 0.7, "a": 0.8},
    "three": {"a": 0.5, "b": 0.4, "c": 0.3},
    "apart": {"else": 0.5},
}


def estimates(areas):
    return {name: {q: Estimate(a, np.empty(0)) for q, a in by.items()} for name, by in areas.items()}


def test_consistency_is_the_mean_over_pairs_of_recognizers_of_what_both_have():
    taus, mean = rank_consistency(estimates(AREAS))
    # a b c against b a c: two of three pairs agree; against c b a: none; b a c against c b a: one.
    assert taus["one", "two"] == pytest.approx(1 / 3)
    assert taus["one", "three"] == pytest.approx(-1)
    assert taus["two", "three"] == pytest.approx(-1 / 3)
    assert np.isnan(taus["one", "apart"])
    assert len(taus) == 6
    assert mean.value == pytest.approx(-1 / 3)
    assert np.isnan(rank_consistency(estimates({"one": AREAS["one"]}))[1].value)


def test_the_mean_has_a_value_in_each_replicate():
    random = np.random.default_rng(0)
    areas = {
        name: {label: Estimate(value, random.integers(0, 4, 30).astype(float)) for label, value in by.items()}
        for name, by in AREAS.items()
    }
    areas["one"]["b"].replicates[7] = np.nan
    mean = rank_consistency(areas)[1]
    for replicate in range(30):
        of_replicate = {
            name: {label: float(area.replicates[replicate]) for label, area in by.items()} for name, by in areas.items()
        }
        expected = rank_consistency(estimates(of_replicate))[1].value
        assert mean.replicates[replicate] == pytest.approx(expected, nan_ok=True)
    assert rank_consistency({"one": areas["one"]})[1].replicates.shape == (0,)
