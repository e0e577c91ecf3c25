import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from facerts.metrics.separation import average_precision, keep_threshold, separation, tnr_at_tpr, tnr_interval

values = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=25)


@given(values, values)
def test_measures_match_scikit_learn(faces, others):
    flags, scores = [1] * len(faces) + [0] * len(others), faces + others
    measured = separation(faces, others)
    assert measured.auroc == pytest.approx(roc_auc_score(flags, scores))
    assert measured.aupr == pytest.approx(average_precision_score(flags, scores))
    assert average_precision(scores, flags) == measured.aupr


@given(values, values, st.sampled_from([0.5, 0.9, 0.95, 1.0]))
def test_tnr_at_tpr_matches_trying_every_threshold(faces, others, tpr):
    kept = [t for t in faces if np.mean(np.array(faces) >= t) >= tpr - 1e-9]
    assert keep_threshold(faces, tpr) == max(kept)
    assert tnr_at_tpr(faces, others, tpr) == np.mean(np.array(others) < max(kept))


def test_an_empty_side_is_refused():
    with pytest.raises(ValueError, match="both"):
        separation([1.0], [])


@pytest.mark.parametrize("tpr", [0.9, 0.95])
def test_the_interval_matches_resampling(tpr):
    random = np.random.default_rng(0)
    faces, others = np.round(random.normal(2, 1, 300), 2), np.round(random.normal(0, 1, 200), 2)
    slow = [tnr_at_tpr(random.choice(faces, 300), random.choice(others, 200), tpr) for _ in range(6000)]
    expected = tuple(np.quantile(slow, [0.025, 0.975]))
    assert tnr_interval(faces, others, tpr, replicates=20_000) == pytest.approx(expected, abs=0.011)


def test_where_every_non_face_is_below_the_interval_extends_to_the_rule_of_three():
    assert tnr_interval([1.0, 2.0], np.zeros(60), 0.95) == (pytest.approx(0.95), 1.0)
    assert tnr_interval([0.0, 0.0], np.ones(60), 0.95) == (0.0, pytest.approx(0.05))
