import numpy as np
import pytest

from facerts.metrics.intervals import (
    check_subjects,
    pair_subjects,
    pair_weights,
    percentile_interval,
)


def test_the_interval_contains_the_central_share():
    values = np.random.default_rng(0).permutation(np.arange(1001.0))
    assert percentile_interval(values) == pytest.approx((25.0, 975.0))


def test_pairs_are_resampled_within_their_class():
    same = np.array([True] * 5 + [False] * 9)
    drawn = list(pair_weights(same, None, replicates=50))
    assert all(weights[same].sum() == 5 and weights[~same].sum() == 9 for weights in drawn)
    assert not np.array_equal(drawn[0], drawn[1])
    again = list(pair_weights(same, None, replicates=50))
    assert all(np.array_equal(one, other) for one, other in zip(drawn, again, strict=True))


def test_a_pair_counts_as_often_as_its_people_were_sampled():
    subjects = np.array([[7, 7], [9, 9], [7, 9], [9, 30], [7, 30]])
    same = np.array([True, True, False, False, False])
    for weights in pair_weights(same, subjects, replicates=100):
        seven, nine = weights[:2]
        assert weights[2] == seven * nine
        # The third person has the remaining ones of three draws.
        assert weights[3] == nine * (3 - seven - nine)
        assert weights[4] == seven * (3 - seven - nine)


def test_subjects_that_contradict_the_pairs_are_refused():
    with pytest.raises(ValueError, match="pair 1 is impostor"):
        check_subjects(np.array([True, False]), np.array([[1, 1], [2, 2]]))
    with pytest.raises(ValueError, match="pair 0 is genuine"):
        check_subjects(np.array([True, False]), np.array([[1, 3], [2, 1]]))
    with pytest.raises(ValueError, match="there are 2 pairs"):
        check_subjects(np.array([True, False]), np.array([[1, 1]]))


def test_subjects_of_pairs_come_from_the_labels_of_images():
    pairs = np.array([[0, 1], [2, 0]])
    assert pair_subjects(None, pairs) is None
    found = pair_subjects(np.array([4, 4, 5]), pairs)
    assert found.tolist() == [[4, 4], [5, 4]]
