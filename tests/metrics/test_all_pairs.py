import numpy as np
import pytest

from facerts.metrics import all_pairs as module
from facerts.metrics.all_pairs import WIDTH, all_pairs, far_intervals
from facerts.metrics.verification import roc


def case(images=700, people=90, seed=0):
    random = np.random.default_rng(seed)
    labels = random.integers(0, people, images)
    vectors = random.normal(size=(people, 16))[labels] + random.normal(size=(images, 16))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), labels + 5


def every_pair(case):
    vectors, labels = case
    first, second = np.triu_indices(len(labels), 1)
    scores = np.einsum("pd,pd->p", vectors[first].astype(np.float64), vectors[second].astype(np.float64))
    return scores, labels[first] == labels[second], np.stack([first, second], axis=1)


@pytest.fixture(params=[(256, 2048), (7, 31), (64, 64)])
def blocks(request, monkeypatch):
    monkeypatch.setattr(module, "ROWS", request.param[0])
    monkeypatch.setattr(module, "COLUMNS", request.param[1])


@pytest.mark.usefixtures("blocks")
def test_every_pair_is_counted_once_whatever_the_blocks():
    given = case()
    scores, same, pairs = every_pair(given)
    found = all_pairs(*given, tail=20_000)
    assert found.impostors == found.counts.sum() == (~same).sum()
    np.testing.assert_allclose(np.sort(found.genuine), np.sort(scores[same]), atol=4e-7)
    listed = {tuple(sorted(pair)) for pair in found.genuine_pairs.tolist()}
    assert listed == {tuple(pair) for pair in pairs[same].tolist()}
    assert 15_000 < len(found.tail) < 25_000
    np.testing.assert_allclose(found.tail, np.sort(scores[~same])[::-1][: len(found.tail)], atol=4e-7)
    vectors, labels = given
    rows = found.tail_pairs
    np.testing.assert_allclose(found.tail, np.einsum("pd,pd->p", vectors[rows[:, 0]], vectors[rows[:, 1]]), atol=1e-6)
    assert (labels[rows[:, 0]] != labels[rows[:, 1]]).all()


def test_operating_points_are_exact_in_the_tail_and_within_a_bin_below():
    given = case()
    scores, same, _ = every_pair(given)
    found, exact = all_pairs(*given, tail=20_000), roc(scores, same)
    for far in (1e-5, 1e-4, 1e-3, 1e-2, 0.05):
        mine, true = found.tar_at_far(far), exact.tar_at_far(far)
        assert (mine.tar, mine.achieved_far) == (true.tar, true.achieved_far)
        # The lowest threshold lies just above the impostor that must be rejected, the ROC's at a score above that.
        assert mine.threshold <= true.threshold + 1e-6
    for far in (0.1, 0.5, 0.9):
        mine = found.tar_at_far(far)
        assert mine.achieved_far <= far
        assert mine.achieved_far == np.mean(scores[~same] >= mine.threshold)
        laxest = np.sort(scores[~same])[::-1][int(far * found.impostors)]
        assert laxest < mine.threshold <= laxest + WIDTH + 1e-6
    assert found.tar_at_far(1.0).tar == 1.0


def test_area_and_curve_are_exact_within_the_stated_bound():
    given = case()
    scores, same, _ = every_pair(given)
    found, exact = all_pairs(*given, tail=20_000), roc(scores, same)
    area, bound = found.auroc()
    assert bound < 1e-4
    assert abs(area - exact.auroc()) <= bound + 1e-7
    curve = found.roc()
    assert curve.eer() == pytest.approx(exact.eer(), abs=1e-4)
    assert curve.auroc() == pytest.approx(exact.auroc(), abs=1e-4)
    at = np.searchsorted(-exact.thresholds, -curve.thresholds[1:1500:7] + 1e-6, side="right") - 1
    # Float32 rounding may put two or three of 240,000 pairs on the other side of a threshold.
    np.testing.assert_allclose(curve.far[1:1500:7], exact.far[at], atol=1.3e-5)


def test_a_replicate_weights_every_pair_by_its_people():
    given = case(300, 40)
    scores, same, pairs = every_pair(given)
    numbers = np.unique(given[1], return_inverse=True)[1]
    found = all_pairs(*given, tail=30_000)
    random = np.random.default_rng(3)
    for thresholds, drawn in found.resampled([0.01, 0.2], replicates=20, seed=3):
        weights = drawn[found.genuine_units]
        counts = np.bincount(random.integers(0, 40, 40), minlength=40)
        of_pair = counts[numbers[pairs[:, 0]]] * np.where(same, 1, counts[numbers[pairs[:, 1]]])
        rows = np.repeat(np.flatnonzero(~same), of_pair[~same])
        falling = np.sort(scores[rows])[::-1]
        for far, threshold in zip([0.01, 0.2], thresholds, strict=True):
            assert threshold == pytest.approx(falling[int(far * len(falling))], abs=1e-6)
        assert weights.sum() == of_pair[same].sum()


def test_intervals_are_limited_to_the_tail():
    given = case()
    found = all_pairs(*given, tail=5000)
    intervals = far_intervals(found, [1e-3, 1e-2, 0.5])
    assert set(intervals) == {1e-3, 1e-2}
    for far, (low, high) in intervals.items():
        assert low < found.tar_at_far(far).tar < high


def test_without_an_error_the_intervals_extend_to_the_rule_of_three():
    found = all_pairs(np.repeat(np.eye(12, dtype=np.float32), 3, axis=0), np.repeat(np.arange(12), 3))
    assert far_intervals(found, [0.1]) == {0.1: (pytest.approx(1 - 3 / 12), 1.0)}


def test_invalid_input_is_refused():
    vectors, labels = case(20, 5)
    broken = vectors.copy()
    broken[7, 3] = np.nan
    with pytest.raises(ValueError, match="embedding 7 has length nan"):
        all_pairs(broken, labels)
    with pytest.raises(ValueError, match="embedding 0 has length"):
        all_pairs(vectors * 2, labels)
    with pytest.raises(ValueError, match="at least two people"):
        all_pairs(vectors, np.zeros(20, dtype=int))
    with pytest.raises(ValueError, match="two images of one"):
        all_pairs(vectors, np.arange(20))
    with pytest.raises(ValueError, match="19 labels"):
        all_pairs(vectors, labels[:19])
