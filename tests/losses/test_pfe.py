import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from facerts.losses.partial_fc import PartialFC
from facerts.losses.pfe import PFE, genuine_pairs
from tests.loss_examples import Images, batch_of, value_of

SIZE = 6
METHOD = PFE(embedding_size=SIZE)


def loss_of(embedding, log_variance, batch):
    """The loss, which does not use the centers."""
    outputs = {"embedding": embedding, "log_variance": log_variance}
    return value_of(METHOD, outputs, batch, PartialFC(5, SIZE))


def test_genuine_pairs_by_a_slow_loop():
    labels, samples = [3, 1, 3, 3, 2, 1, 3], [10, 11, 12, 10, 13, 14, 15]
    first, second = genuine_pairs(torch.tensor(labels), torch.tensor(samples))
    expected = {
        (i, j) for i, j in itertools.combinations(range(7), 2) if labels[i] == labels[j] and samples[i] != samples[j]
    }
    assert len(first) == len(expected) == 6
    assert set(zip(first.tolist(), second.tolist(), strict=True)) == expected


def test_the_loss_is_minus_the_mean_log_density_over_genuine_pairs():
    torch.manual_seed(0)
    embedding, raw = torch.randn(2, 5, SIZE, dtype=torch.float64).unbind()
    unit, variance = F.normalize(embedding), raw.exp() / SIZE
    expected = [
        -stats.multivariate_normal(unit[i] - unit[j], np.diag(variance[i] + variance[j])).logpdf(np.zeros(SIZE))
        for i, j in ((0, 2), (0, 4), (2, 4), (1, 3))
    ]
    embedding.requires_grad_()
    loss = loss_of(embedding, raw.requires_grad_(), batch_of([0, 1, 0, 1, 0]))
    assert torch.autograd.grad(loss.total, embedding, allow_unused=True, retain_graph=True) == (None,)
    assert loss.total.item() == pytest.approx(np.mean(expected), rel=1e-9)
    assert loss.parts["pairs"] == 4
    np.testing.assert_allclose(loss.per_image["variance"], stats.hmean(variance.numpy(), axis=1))


def test_a_batch_without_a_pair_has_no_loss():
    raw = torch.zeros(3, SIZE, requires_grad=True)
    # No two images of one person, but one image twice.
    labels = torch.tensor([0, 1, 1])
    loss = loss_of(torch.randn(3, SIZE), raw, Images(labels, labels, step=0))
    loss.total.backward()
    assert loss.total.item() == 0
    assert not raw.grad.any()
