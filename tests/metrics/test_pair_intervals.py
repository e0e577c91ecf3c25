import numpy as np
import pytest

from facerts.metrics import pair_intervals
from facerts.metrics.intervals import pair_weights
from facerts.metrics.pair_intervals import share_interval, verification_intervals
from facerts.metrics.verification import roc

FARS = (0.2, 0.05)


def case(seed, pairs=400, people=30, digits=1):
    """Scores with ties, and the subjects of each pair; people differ in how easy they are to recognize."""
    random = np.random.default_rng(seed)
    same = random.random(pairs) < 0.4
    first = random.integers(0, people, pairs)
    other = (first + random.integers(1, people, pairs)) % people
    hard = random.normal(size=people)
    scores = random.normal(same * 1.5 + hard[first] * np.where(same, -0.7, 0.3), 1.0)
    return np.round(scores, digits), same, np.stack([first, np.where(same, first, other)], axis=1)


@pytest.mark.parametrize("by", ["pairs", "subjects"])
def test_a_replicate_equals_the_metric_of_pairs_repeated_by_their_weights(by):
    scores, same, subjects = case(0)
    given = subjects if by == "subjects" else None
    # Pairs are sampled differently: only the distribution agrees.
    replicates = 300 if by == "subjects" else 3000
    slow = []
    for weights in pair_weights(same, given, replicates=replicates, seed=5):
        rows = np.repeat(np.arange(len(scores)), weights.astype(int))
        curve = roc(scores[rows], same[rows])
        slow.append([curve.auroc(), curve.eer(), *(curve.tar_at_far(far).tar for far in FARS)])
    got = verification_intervals(scores, same, FARS, subjects=given, replicates=replicates, seed=5)
    assert got.unit == by
    fast = [got.auroc, got.eer, *(got.tar_at_far[far] for far in FARS)]
    expected = np.quantile(np.array(slow), [0.025, 0.975], axis=0).T
    tolerance = 1e-9 if by == "subjects" else 0.012
    # The EER is interpolated linearly; a set this small determines it only within a threshold.
    np.testing.assert_allclose(fast, expected, atol=tolerance)


def test_far_is_exact_to_a_fifth_of_a_percent_with_wide_bins(monkeypatch):
    random = np.random.default_rng(1)
    same = np.arange(60_000) < 4000
    scores = random.normal(same * 2.0, 1.0)
    people = np.arange(60_000)
    subjects = np.stack([people, np.where(same, people, people + 60_000)], axis=1)
    monkeypatch.setattr(pair_intervals, "subject_counts", lambda number, *_: iter([np.ones(number, dtype=np.float32)]))
    curve = next(pair_intervals._resampled(scores, same, subjects, 1, 0))
    exact = roc(scores, same)
    assert len(curve.far) < 8000
    assert curve.auroc() == pytest.approx(exact.auroc(), abs=2e-4)
    assert curve.eer() == pytest.approx(exact.eer(), rel=2e-3)
    for far in (0.3, 0.1, 0.01, 1e-3, 1e-4):
        allowed = exact.tar_at_far(far * 0.998).tar, exact.tar_at_far(far * 1.002).tar
        assert allowed[0] <= curve.tar_at_far(far).tar <= allowed[1]


def test_the_interval_of_accuracy_keeps_the_proportion_of_classes():
    same = np.array([True] * 10 + [False] * 30)
    right = ~same  # every impostor pair right, every genuine pair wrong
    assert share_interval(right, same) == (0.75, 0.75)
    low, high = share_interval(np.arange(40) % 4 != 0, same, replicates=4000)
    # Binomial within each class: 0.1875 · (10 and 30 shares), by the textbook.
    p, q = np.mean(np.arange(10) % 4 != 0), np.mean(np.arange(10, 40) % 4 != 0)
    error = np.sqrt(0.25**2 * p * (1 - p) / 10 + 0.75**2 * q * (1 - q) / 30)
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.1)


@pytest.mark.parametrize(("by", "units"), [("pairs", 30), ("subjects", 10)])
def test_without_an_error_the_intervals_extend_to_the_rule_of_three(by, units):
    people = np.repeat(np.arange(10), 3)
    subjects = np.stack([np.tile(people, 2), np.append(people, (people + 1) % 10)], axis=1)
    same = np.arange(60) < 30
    given = subjects if by == "subjects" else None
    found = verification_intervals(same * 1.0, same, [0.1], subjects=given)
    assert found.tar_at_far[0.1] == found.auroc == (pytest.approx(1 - 3 / units), 1.0)
    assert found.eer == (0.0, pytest.approx(3 / units))
    of_all = 60 if by == "pairs" else 10
    assert share_interval(np.ones(60), same, subjects=given) == (pytest.approx(1 - 3 / of_all), 1.0)
