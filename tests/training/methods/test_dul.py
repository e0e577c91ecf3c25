from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal
from torch.distributions import kl_divergence as torch_kl
from torch.nn import functional as F

from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.methods import dul as dul_module
from facerts.training.methods.dul import DUL, DULConfig
from facerts.training.methods.kl_prior import normal_kl
from facerts.training.methods.noise import keyed_normal
from facerts.training.nn.twin_heads import HeadSpec
from tests.losses import batch_of, slow_softmax

SIZE = 6


def method(**settings: float) -> DUL:
    return DUL(DULConfig(**settings), SIZE)


def test_the_divergence_is_that_of_the_normals() -> None:
    torch.manual_seed(0)
    mean, log_variance = torch.randn(2, 4, SIZE, dtype=torch.float64).unbind()
    prior = Normal(torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64))
    expected = torch_kl(Normal(mean, (0.5 * log_variance).exp()), prior).mean(dim=1)
    torch.testing.assert_close(normal_kl(mean, log_variance), expected)


def test_the_loss_by_a_slow_loop() -> None:
    torch.manual_seed(2)
    centers, labels = ClassCenters(5, SIZE).double(), [0, 1, 2, 3]
    mean, log_variance = torch.randn(2, 4, SIZE, dtype=torch.float64).unbind()
    batch = batch_of(labels)
    noise = keyed_normal(batch.seed, batch.step, batch.samples, SIZE).double()
    sample = [
        [mean[i, j] + noise[i, j] * math.exp(log_variance[i, j] / 2) for j in range(SIZE)] for i in range(4)
    ]
    expected = slow_softmax(
        torch.tensor(sample), centers.weight, labels, 8, lambda angle, row: math.cos(angle + 0.2)
    )
    for m, x in zip(mean.flatten().tolist(), log_variance.flatten().tolist(), strict=True):
        expected += 0.3 * 0.5 * (m * m + math.exp(x) - x - 1) / SIZE / 4
    outputs = {"embedding": mean, "log_variance": log_variance}
    loss = method(logit_scale=8, margin=0.2, kl_weight=0.3).loss(outputs, batch, centers)
    assert loss.total.item() == pytest.approx(expected, rel=1e-7)


def test_samples_have_the_mean_and_the_variance() -> None:
    draws = 20_000
    mean = torch.tensor([0.5, -2.0, 0, 0, 1, 3])
    log_variance = torch.tensor([0.0, -2.0, 1.0, -1.0, 0.5, -4.0])
    outputs = {"embedding": mean.expand(draws, -1), "log_variance": log_variance.expand(draws, -1)}
    sample = method().image_terms(outputs, batch_of([0] * draws)).embedding
    variance = log_variance.exp()
    assert ((sample.mean(dim=0) - mean).abs() < 5 * (variance / draws).sqrt()).all()
    assert ((sample.var(dim=0) - variance).abs() < 5 * variance * math.sqrt(2 / draws)).all()


def test_the_noise_is_new_at_every_step_and_absent_from_the_score(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = {"embedding": torch.randn(3, SIZE), "log_variance": torch.zeros(3, SIZE)}
    drawn = [method().image_terms(outputs, batch_of([0, 1, 2], step=step)).embedding for step in (0, 0, 1)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.isclose(drawn[0], drawn[2]).any()
    monkeypatch.setattr(dul_module, "keyed_normal", None)
    torch.testing.assert_close(method().score(outputs)["embedding"], F.normalize(outputs["embedding"]))


def test_the_score_is_the_harmonic_mean_of_the_variances() -> None:
    assert method().heads() == {"log_variance": HeadSpec(SIZE, batch_norm=True)}
    variance = np.array([[1.0, 2, 4, 1, 2, 4], [0.1, 0.1, 0.1, 0.1, 0.1, 0.1]])
    log_variance = torch.tensor(np.log(variance), dtype=torch.float32)
    scored = method().score({"embedding": torch.randn(2, SIZE), "log_variance": log_variance})
    np.testing.assert_allclose(scored["uncertainty"], stats.hmean(variance, axis=1), rtol=1e-6)
    assert torch.equal(scored["quality"], -scored["uncertainty"])
    np.testing.assert_allclose(scored["variance"], variance, rtol=1e-6)
