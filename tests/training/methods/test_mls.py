from __future__ import annotations

import numpy as np
import torch
from scipy import stats
from torch.nn import functional as F

from facerts.training.methods.mls import (
    MAX_LOG_VARIANCE,
    MIN_LOG_VARIANCE,
    bounded,
    harmonic_mean,
    mutual_likelihood,
)


def gaussians(count: int = 6, size: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(count, size, generator=generator, dtype=torch.float64)
    return mean, torch.randn(count, size, generator=generator, dtype=torch.float64).exp()


def test_it_is_the_log_density_at_zero_of_the_difference() -> None:
    mean, variance = gaussians()
    actual = mutual_likelihood(mean[:3], variance[:3], mean[3:], variance[3:])
    expected = [
        stats.multivariate_normal(mean[i] - mean[j], np.diag(variance[i] + variance[j])).logpdf(np.zeros(4))
        for i, j in ((0, 3), (1, 4), (2, 5))
    ]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    torch.testing.assert_close(actual, mutual_likelihood(mean[3:], variance[3:], mean[:3], variance[:3]))


def test_with_one_variance_for_all_it_ranks_pairs_as_the_cosine_does() -> None:
    unit = F.normalize(gaussians(60, 8)[0])
    first, second = unit[:30], unit[30:]
    variance = torch.full_like(first, 0.3)
    likelihood = mutual_likelihood(first, variance, second, variance)
    cosine = (first * second).sum(dim=1)
    assert torch.equal(likelihood.argsort(), cosine.argsort())


def test_its_gradient() -> None:
    mean, variance = gaussians()
    inputs = [part.requires_grad_() for part in (mean[:3].clone(), variance[:3].clone(), mean[3:].clone())]
    assert torch.autograd.gradcheck(lambda a, v, b: mutual_likelihood(a, v, b, variance[3:]), inputs)


def test_it_is_largest_where_the_variance_is_the_squared_difference() -> None:
    # The maximum of −½ (δ²/s + log s) over the summed variance s.
    variance = torch.linspace(0.01, 1, 1000, dtype=torch.float64).unsqueeze(1)
    zero = torch.zeros_like(variance)
    actual = mutual_likelihood(zero + 0.6, variance / 2, zero, variance / 2)
    assert abs(variance[actual.argmax()].item() - 0.36) < 1e-3


def test_the_harmonic_mean_by_hand() -> None:
    actual = harmonic_mean(torch.tensor([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0]]))
    torch.testing.assert_close(actual, torch.tensor([3 / 1.75, 3.0]))


def test_bounds_hold_and_let_the_gradient_through() -> None:
    x = torch.tensor([-500.0, -2.0, 0.0, 3.0, 500.0], requires_grad=True)
    kept = bounded(x)
    expected = torch.tensor([MIN_LOG_VARIANCE, -2.0, 0.0, 3.0, MAX_LOG_VARIANCE])
    torch.testing.assert_close(kept.detach(), expected, atol=1e-4, rtol=0)
    assert torch.equal(kept[1:4], x[1:4])
    kept.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.ones(5))
