import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from facerts.metrics.compared_pairs import compare_listed
from facerts.metrics.verification import (
    auroc,
    best_threshold,
    check_fmr,
    pair_cosine,
    reachable,
    roc,
    ten_fold_accuracy,
)


@st.composite
def cases(draw):
    """Scores with many ties, both classes present."""
    size = draw(st.integers(2, 40))
    scores = draw(st.lists(st.sampled_from([-0.5, 0.0, 0.1, 0.2, 0.7, 1.0]), min_size=size, max_size=size))
    same = draw(st.lists(st.booleans(), min_size=size, max_size=size).filter(lambda s: any(s) and not all(s)))
    return np.array(scores), np.array(same)


@given(cases())
def test_auroc_matches_scikit_learn(case):
    scores, same = case
    assert auroc(scores, same) == pytest.approx(roc_auc_score(same, scores), abs=1e-12)


@given(cases())
def test_roc_matches_scikit_learn(case):
    scores, same = case
    curve = roc(scores, same)
    far, tar, thresholds = roc_curve(same, scores, drop_intermediate=False)
    np.testing.assert_allclose(curve.far, far)
    np.testing.assert_allclose(curve.tar, tar)
    np.testing.assert_allclose(curve.thresholds[1:], thresholds[1:])


@given(cases())
def test_eer_lies_where_both_errors_meet(case):
    scores, same = case
    curve = roc(scores, same)
    value = curve.eer()
    # On the polygon through the ROC's points, FAR and FRR are both equal to it.
    frr_there = np.interp(value, curve.far, 1 - curve.tar)
    vertical = (curve.far == value).any()
    assert vertical or frr_there == pytest.approx(value, abs=1e-9)


@given(cases(), st.sampled_from([0.0, 0.01, 0.1, 0.34, 0.5, 1.0]))
def test_tar_at_far_is_the_best_within_the_target(case, target):
    scores, same = case
    allowed = [np.mean(scores[same] >= t) for t in [*scores, np.inf] if np.mean(scores[~same] >= t) <= target]
    point = roc(scores, same).tar_at_far(target)
    assert point.tar == pytest.approx(max(allowed))
    assert point.achieved_far <= target
    assert point.achieved_far == pytest.approx(np.mean(scores[~same] >= point.threshold))


@given(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9]), min_size=1, max_size=30), st.floats(0, 1))
def test_the_threshold_at_a_rate_is_the_lowest_within_it(scores, fmr):
    values, rows = np.array(scores), np.arange(2 * len(scores) + 2).reshape(-1, 2)
    threshold = compare_listed([0.7, *scores], np.arange(len(rows)) == 0, rows, None).threshold(fmr)
    assert np.mean(values >= threshold) <= fmr + 1e-9
    below = values[values < threshold]
    if len(below):  # any lower threshold would accept too many impostors
        assert np.mean(values >= below.max()) > fmr - 1e-9


@given(cases())
def test_the_best_threshold_has_the_highest_accuracy(case):
    scores, same = case
    right = max(np.sum((scores >= t) == same) for t in [*scores, np.inf])
    assert np.sum((scores >= best_threshold(scores, same)) == same) == right


def test_a_thinned_curve_keeps_ends_and_points():
    random = np.random.default_rng(3)
    same = random.random(30_000) < 0.1
    scores = random.normal(same * 2.0)
    whole = roc(scores, same)
    thin = whole.thinned(400)
    assert len(thin.far) <= 402
    assert (thin.far[0], thin.tar[-1]) == (0.0, 1.0)
    assert set(zip(thin.far, thin.tar, strict=True)) <= set(zip(whole.far, whole.tar, strict=True))
    assert thin.tar_at_far(1e-2).tar == pytest.approx(whole.tar_at_far(1e-2).tar, abs=0.01)
    assert roc(scores[:50], same[:50]).thinned(400).far.tolist() == roc(scores[:50], same[:50]).far.tolist()


def test_rates_below_one_impostor_are_not_reachable_and_refused():
    assert reachable((1e-1, 1e-3, 1e-4), 3000) == [1e-1, 1e-3]
    assert reachable((1e-3,), 1000) == [1e-3]
    check_fmr(1e-3, 1000)
    with pytest.raises(ValueError, match=r"FMR 0\.001 needs at least 1,000 .* there are 999; .* such as 0\.01$"):
        check_fmr(1e-3, 999)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0, float("nan")])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(ValueError, match=r"not a valid FMR; .* between 0 and 1"):
        check_fmr(rate, 3000)


def test_ten_fold_accuracy_matches_a_slow_reference():
    random = np.random.default_rng(0)
    same = random.random(400) < 0.5
    scores = np.round(random.normal(same * 1.0, 0.8), 2)
    folds = np.repeat(np.arange(10), 40)
    accuracies = []
    for fold in range(10):
        train, test = folds != fold, folds == fold
        threshold = best_threshold(scores[train], same[train])
        best = max(np.sum((scores[train] >= t) == same[train]) for t in [*scores[train], np.inf])
        assert np.sum((scores[train] >= threshold) == same[train]) == best
        accuracies.append(np.mean((scores[test] >= threshold) == same[test]))
    got = ten_fold_accuracy(scores, same, folds)
    assert got.value == pytest.approx(np.mean(accuracies))


def test_pair_cosine_chunks_agree_with_the_plain_product():
    random = np.random.default_rng(2)
    embedding = random.normal(size=(50, 8))
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    pairs = random.integers(0, 50, (5000, 2))
    np.testing.assert_allclose(
        pair_cosine(embedding, pairs),
        (embedding[pairs[:, 0]] * embedding[pairs[:, 1]]).sum(axis=1),
        atol=1e-12,
    )


@pytest.mark.parametrize(
    ("scores", "same", "message"),
    [
        ([0.1, np.nan], [True, False], "score 1 is not a finite"),
        ([0.1, 0.2], [True, True], "both genuine and impostor"),
        ([0.1], [True, False], "the same length"),
    ],
)
def test_invalid_scores_are_refused(scores, same, message):
    for metric in (auroc, roc, best_threshold):
        with pytest.raises(ValueError, match=message):
            metric(scores, same)
    with pytest.raises(ValueError, match="at least two folds"):
        ten_fold_accuracy([0.1, 0.2], [True, False], [0, 0])
