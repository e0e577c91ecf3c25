from __future__ import annotations

import numpy as np
from scipy import stats

from facerts.metrics.likelihood import fused_gaussian, mutual_likelihood
from facerts.metrics.verification import CHUNK, pair_cosine


def test_the_score_is_the_log_density_of_the_difference_at_zero() -> None:
    random = np.random.default_rng(0)
    mean, variance = random.normal(size=(7, 5)), random.uniform(0.1, 3, (7, 5))
    pairs = random.integers(0, 7, (20, 2))
    expected = [
        stats.multivariate_normal(mean[i] - mean[j], np.diag(variance[i] + variance[j])).logpdf(np.zeros(5))
        for i, j in pairs
    ]
    np.testing.assert_allclose(mutual_likelihood(mean, variance, pairs), expected, rtol=1e-12)


def test_chunks_do_not_matter_and_float32_is_widened() -> None:
    random = np.random.default_rng(1)
    mean = random.normal(size=(50, 3)).astype(np.float32)
    variance = random.uniform(0.1, 3, (50, 3)).astype(np.float32)
    pairs = random.integers(0, 50, (2 * CHUNK + 17, 2))
    got = mutual_likelihood(mean, variance, pairs)
    assert got.dtype == np.float64
    i, j = pairs[:, 0], pairs[:, 1]
    deviation = np.sqrt(variance[i].astype(np.float64) + variance[j])
    difference = mean[i].astype(np.float64) - mean[j]
    np.testing.assert_allclose(got, stats.norm.logpdf(difference, scale=deviation).sum(axis=1), rtol=1e-12)


def test_with_equal_variances_pairs_are_ranked_as_by_cosine() -> None:
    random = np.random.default_rng(2)
    unit = random.normal(size=(40, 16))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    pairs = np.stack([np.arange(20), np.arange(20, 40)], axis=1)
    likelihood = mutual_likelihood(unit, np.full((40, 16), 0.05), pairs)
    np.testing.assert_array_equal(np.argsort(likelihood), np.argsort(pair_cosine(unit, pairs)))


def test_uncertain_faces_have_less_extreme_scores() -> None:
    mean = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    pairs = np.array([[0, 1], [0, 2]])
    sure = mutual_likelihood(mean, np.full((3, 2), 0.01), pairs)
    doubtful = mutual_likelihood(mean, np.array([[1.0, 1.0], [0.01, 0.01], [0.01, 0.01]]), pairs)
    assert sure[0] > doubtful[0] > doubtful[1] > sure[1]


def test_no_pairs_give_no_scores() -> None:
    assert mutual_likelihood(np.ones((2, 3)), np.ones((2, 3)), np.empty((0, 2), dtype=int)).shape == (0,)


def test_fused_gaussians_are_the_normalized_product_of_densities() -> None:
    """Against moments of the product, integrated numerically; entries are independent, so each is one integral."""
    random = np.random.default_rng(3)
    means, variances = random.normal(size=(3, 2, 4)), random.uniform(0.05, 2, (3, 2, 4))
    mean, variance = fused_gaussian(means, variances)
    x = np.linspace(-25, 25, 200_001)
    for row, entry in np.ndindex(2, 4):
        log_density = sum(
            stats.norm.logpdf(x, means[view, row, entry], np.sqrt(variances[view, row, entry]))
            for view in range(3)
        )
        density = np.exp(log_density - log_density.max())
        density /= density.sum()
        center = (x * density).sum()
        np.testing.assert_allclose(mean[row, entry], center, rtol=1e-8)
        np.testing.assert_allclose(variance[row, entry], ((x - center) ** 2 * density).sum(), rtol=1e-8)


def test_fusion_averages_equal_variances_and_follows_a_certain_view() -> None:
    means = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    mean, variance = fused_gaussian(means, np.full((2, 1, 2), 0.3))
    np.testing.assert_allclose(mean, [[0.5, 0.5]])
    np.testing.assert_allclose(variance, [[0.15, 0.15]])
    mean, variance = fused_gaussian(means, np.array([[[1e-9, 1e-9]], [[1.0, 1.0]]]))
    np.testing.assert_allclose(mean, [[1.0, 0.0]], atol=1e-8)
    np.testing.assert_allclose(variance, 1e-9, rtol=1e-8)


def test_fusing_one_view_is_the_identity_and_float32_is_widened() -> None:
    random = np.random.default_rng(4)
    means = random.normal(size=(1, 3, 2)).astype(np.float32)
    variances = np.full((1, 3, 2), 1e-40, dtype=np.float32)
    mean, variance = fused_gaussian(means, variances)
    assert mean.dtype == variance.dtype == np.float64
    np.testing.assert_allclose(mean, means[0], rtol=1e-12)
    np.testing.assert_allclose(variance, variances[0].astype(np.float64), rtol=1e-12)
