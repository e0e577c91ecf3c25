from __future__ import annotations

import numpy as np
from scipy import stats

from facerts.metrics.likelihood import mutual_likelihood
from facerts.metrics.verification import CHUNK, pair_cosine


def test_it_is_the_log_density_at_zero_of_the_difference() -> None:
    random = np.random.default_rng(0)
    mean, variance = random.normal(size=(7, 5)), random.uniform(0.1, 3, (7, 5))
    pairs = random.integers(0, 7, (20, 2))
    expected = [
        stats.multivariate_normal(mean[i] - mean[j], np.diag(variance[i] + variance[j])).logpdf(np.zeros(5))
        for i, j in pairs
    ]
    np.testing.assert_allclose(mutual_likelihood(mean, variance, pairs), expected, rtol=1e-12)


def test_chunks_change_nothing_and_float32_is_widened() -> None:
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


def test_with_one_variance_for_all_it_ranks_pairs_as_the_cosine_does() -> None:
    random = np.random.default_rng(2)
    unit = random.normal(size=(40, 16))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    pairs = np.stack([np.arange(20), np.arange(20, 40)], axis=1)
    likelihood = mutual_likelihood(unit, np.full((40, 16), 0.05), pairs)
    np.testing.assert_array_equal(np.argsort(likelihood), np.argsort(pair_cosine(unit, pairs)))


def test_a_doubtful_face_is_less_like_its_match_and_less_unlike_a_stranger() -> None:
    mean = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    pairs = np.array([[0, 1], [0, 2]])
    sure = mutual_likelihood(mean, np.full((3, 2), 0.01), pairs)
    doubtful = mutual_likelihood(mean, np.array([[1.0, 1.0], [0.01, 0.01], [0.01, 0.01]]), pairs)
    assert sure[0] > doubtful[0] > doubtful[1] > sure[1]


def test_no_pairs_give_no_scores() -> None:
    assert mutual_likelihood(np.ones((2, 3)), np.ones((2, 3)), np.empty((0, 2), dtype=int)).shape == (0,)
