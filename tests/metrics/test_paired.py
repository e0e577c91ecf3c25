import numpy as np
import pytest

from facerts.metrics.intervals import pair_weights
from facerts.metrics.paired import compare_scores
from facerts.metrics.separation import separation, tnr_at_tpr
from facerts.metrics.verification import auroc, roc, ten_fold_accuracy


def case(pairs=600):
    random = np.random.default_rng(0)
    same, folds = np.arange(pairs) % 2 == 0, np.arange(pairs) // 2 % 10
    shared = random.normal(same * 1.5, 1.0)
    return shared, same, folds, random.normal(size=pairs)


def test_values_are_the_differences_of_the_metrics():
    scores, same, folds, noise = case()
    other = scores + 0.5 * noise
    found = compare_scores(scores, other, same, folds=folds, far=0.05, replicates=50)
    accuracies = [ten_fold_accuracy(s, same, folds).value for s in (scores, other)]
    assert found["accuracy"].value == pytest.approx(accuracies[0] - accuracies[1])
    assert found["auroc"].value == pytest.approx(auroc(scores, same) - auroc(other, same))
    tars = [roc(s, same).tar_at_far(0.05).tar for s in (scores, other)]
    assert found["tar_at_far"].value == pytest.approx(tars[0] - tars[1])


def test_a_replicate_equals_the_metric_of_repeated_pairs():
    scores, same, folds, noise = case(200)
    subjects = np.stack([np.arange(200) // 4, np.where(same, np.arange(200) // 4, 60)], axis=1)
    differences = []
    for weights in pair_weights(same, subjects, replicates=60, seed=4):
        rows = np.repeat(np.arange(200), weights.astype(int))
        if not weights[~same].any():
            continue
        one, other = (
            (auroc(s[rows], same[rows]), roc(s[rows], same[rows]).tar_at_far(0.05).tar)
            for s in (scores, scores + noise)
        )
        differences.append(np.subtract(one, other))
    found = compare_scores(
        scores, scores + noise, same, folds=folds, far=0.05, subjects=subjects, replicates=60, seed=4
    )
    low, high = np.quantile(differences, [0.025, 0.975], axis=0)
    assert found["auroc"].ci95 == pytest.approx((low[0], high[0]))
    assert found["tar_at_far"].ci95 == pytest.approx((low[1], high[1]))
    assert found["auroc"].unit == "subjects"


def test_a_clear_difference_is_significant_and_antisymmetric():
    scores, same, _, noise = case()
    worse = scores + 2 * noise
    found, reverse = compare_scores(scores, worse, same), compare_scores(worse, scores, same)
    assert found["auroc"].p_value == pytest.approx(2 / 1001)
    assert found["auroc"].ci95[0] > 0
    assert reverse["auroc"].value == -found["auroc"].value


def test_paired_separations_match_the_metrics_and_their_replicates():
    random = np.random.default_rng(2)
    faces, others = np.round(random.normal(1, 1, 80), 1), np.round(random.normal(0, 1, 60), 1)
    second = faces + random.normal(size=80), others + random.normal(size=60)
    first, flags = np.concatenate([faces, others]), np.repeat([True, False], [80, 60])
    found = compare_scores(first, np.concatenate(second), flags, tpr=0.9, replicates=50, seed=1)

    def measured(rows):
        inside, outside = rows[rows < 80], rows[rows >= 80] - 80
        return np.subtract(
            *(
                [separation(f[inside], o[outside]).auroc, tnr_at_tpr(f[inside], o[outside], 0.9)]
                for f, o in ((faces, others), second)
            )
        )

    whole = measured(np.arange(140))
    assert (found["auroc"].value, found["tnr_at_tpr"].value) == pytest.approx(tuple(whole))
    drawn = [
        measured(np.repeat(np.arange(140), weights.astype(int)))
        for weights in pair_weights(flags, None, replicates=50, seed=1)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    assert found["auroc"].ci95 == pytest.approx((low[0], high[0]))
    assert found["tnr_at_tpr"].ci95 == pytest.approx((low[1], high[1]))
    with pytest.raises(ValueError, match="the same faces"):
        compare_scores(first, first[1:], flags)
