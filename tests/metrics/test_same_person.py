import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from facerts.metrics.same_person import RIDGE, SamePerson, fit_same_person, quality_level


def pairs(seed):
    """Cosines, quality levels and whether the person is the same; poor faces of a person are less alike."""
    random = np.random.default_rng(seed)
    first, second = quality_level(random.uniform(0, 100, (2, 20_000)))
    same = random.random(20_000) < 0.02
    mean = np.where(same, 0.6 + 0.15 * np.minimum(first, second), 0.0)
    return mean + random.normal(0, 0.1, 20_000), first, second, same


def test_the_fit_is_that_of_logistic_regression_without_its_prior():
    cosine, first, second, same = pairs(0)
    poorer = np.minimum(first, second)
    features = np.stack([cosine, poorer, cosine * poorer], axis=1)
    model = LogisticRegression(C=1 / RIDGE, tol=1e-10, max_iter=1000)
    expected = model.fit(StandardScaler().fit(features).transform(features), same)
    odds = expected.decision_function(StandardScaler().fit(features).transform(features))
    prior = np.log(same.mean() / (1 - same.mean()))
    fitted = fit_same_person(cosine, first, second, same)
    np.testing.assert_allclose(fitted.log_likelihood_ratio(cosine, first, second), odds - prior, rtol=1e-4, atol=1e-4)


def test_the_minimum_cosine_reaches_the_ratio():
    fitted = fit_same_person(*pairs(2))
    levels = [-2.5, 0.0]
    minimum = fitted.minimum_cosine(3.0, levels)
    reached = fitted.log_likelihood_ratio([minimum] * 2, levels, levels)
    assert reached.max() == pytest.approx(3.0)
    assert SamePerson((0.0, 1.0, 0.0, 1.0)).minimum_cosine(3.0, levels) == -1.0


def test_levels_are_finite_and_unknown_qualities_are_ordinary():
    np.testing.assert_allclose(quality_level([0, 10, 100, np.nan]), np.log10([0.002, 0.102, 1.002, 0.502]))


def test_one_kind_of_pairs_is_refused():
    cosine, first, second, _ = pairs(3)
    with pytest.raises(ValueError, match="pairs of the same person and pairs of different people"):
        fit_same_person(cosine, first, second, np.ones(len(cosine)))
