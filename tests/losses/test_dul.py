import math

import pytest
import torch

from facerts.losses.dul import DUL
from facerts.losses.noise import keyed_normal
from facerts.losses.partial_fc import PartialFC
from tests.loss_examples import batch_of, slow_softmax, value_of

SIZE = 6


def method(**settings):
    return DUL(embedding_size=SIZE, **settings)


def test_the_loss_by_a_slow_loop():
    torch.manual_seed(2)
    centers, labels = PartialFC(5, SIZE).double(), [0, 1, 2, 3]
    mean, log_variance = torch.randn(2, 4, SIZE, dtype=torch.float64).unbind()
    batch = batch_of(labels)
    noise = keyed_normal(0, batch.step, batch.samples, SIZE).double()
    sample = [[mean[i, j] + noise[i, j] * math.exp(log_variance[i, j] / 2) for j in range(SIZE)] for i in range(4)]
    expected = slow_softmax(torch.tensor(sample), centers.weight, labels, 8, lambda angle, row: math.cos(angle + 0.2))
    for m, x in zip(mean.flatten().tolist(), log_variance.flatten().tolist(), strict=True):
        expected += 0.3 * 0.5 * (m * m + math.exp(x) - x - 1) / SIZE / 4
    outputs = {"embedding": mean, "log_variance": log_variance}
    loss = value_of(method(logit_scale=8, margin=0.2, kl_weight=0.3), outputs, batch, centers)
    assert loss.total.item() == pytest.approx(expected, rel=1e-7)
