import numpy as np
from scipy import stats

from facerts.metrics.likelihood import fused_gaussian, mutual_likelihood
from facerts.metrics.verification import CHUNK


def test_chunks_do_not_matter_and_float32_is_widened():
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


def test_fused_gaussians_are_the_normalized_product_of_densities():
    """Against moments of the product, integrated numerically; entries are independent, so each is one integral."""
    random = np.random.default_rng(3)
    means, variances = random.normal(size=(3, 2, 4)), random.uniform(0.05, 2, (3, 2, 4))
    mean, variance = fused_gaussian(means, variances)
    x = np.linspace(-25, 25, 200_001)
    for row, entry in np.ndindex(2, 4):
        log_density = sum(
            stats.norm.logpdf(x, means[view, row, entry], np.sqrt(variances[view, row, entry])) for view in range(3)
        )
        density = np.exp(log_density - log_density.max())
        density /= density.sum()
        center = (x * density).sum()
        np.testing.assert_allclose(mean[row, entry], center, rtol=1e-8)
        np.testing.assert_allclose(variance[row, entry], ((x - center) ** 2 * density).sum(), rtol=1e-8)
