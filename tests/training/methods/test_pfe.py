from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.methods import Batch
from facerts.training.methods.pfe import PFE, genuine_pairs

SIZE = 6
CENTERS = ClassCenters(5, SIZE)  # which the loss does not use


def method() -> PFE:
    return PFE(PFE.Config(), SIZE)


def batch(labels: list[int], samples: list[int] | None = None) -> Batch:
    indices = list(range(len(labels))) if samples is None else samples
    return Batch(torch.tensor(labels), torch.tensor(indices), step=0, seed=1)


def test_genuine_pairs_by_a_slow_loop() -> None:
    labels, samples = [3, 1, 3, 3, 2, 1, 3], [10, 11, 12, 10, 13, 14, 15]
    first, second = genuine_pairs(torch.tensor(labels), torch.tensor(samples))
    expected = {
        (i, j)
        for i, j in itertools.combinations(range(7), 2)
        if labels[i] == labels[j] and samples[i] != samples[j]
    }
    assert len(first) == len(expected) == 6
    assert set(zip(first.tolist(), second.tolist(), strict=True)) == expected


def test_the_loss_is_minus_the_mean_log_density_over_genuine_pairs() -> None:
    torch.manual_seed(0)
    embedding, raw = torch.randn(2, 5, SIZE, dtype=torch.float64).unbind()
    unit, variance = F.normalize(embedding), raw.exp() / SIZE
    expected = [
        -stats.multivariate_normal(unit[i] - unit[j], np.diag(variance[i] + variance[j])).logpdf(
            np.zeros(SIZE)
        )
        for i, j in ((0, 2), (0, 4), (2, 4), (1, 3))
    ]
    outputs = {"embedding": embedding, "log_variance": raw}
    loss = method().loss(outputs, batch([0, 1, 0, 1, 0]), CENTERS)
    assert loss.total.item() == pytest.approx(np.mean(expected), rel=1e-9)
    assert loss.parts["pairs"] == 4
    np.testing.assert_allclose(loss.per_image["variance"], stats.hmean(variance.numpy(), axis=1))


def test_the_loss_by_gradcheck() -> None:
    torch.manual_seed(1)
    embedding = torch.randn(4, SIZE, dtype=torch.float64)

    def total(raw: torch.Tensor) -> torch.Tensor:
        outputs = {"embedding": embedding, "log_variance": raw}
        return method().loss(outputs, batch([0, 1, 0, 1]), CENTERS).total

    raw = torch.randn(4, SIZE, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(total, (raw,))


def test_the_embedding_does_not_change() -> None:
    embedding = torch.randn(4, SIZE, requires_grad=True)
    raw = torch.zeros(4, SIZE, requires_grad=True)
    outputs = {"embedding": embedding, "log_variance": raw}
    method().loss(outputs, batch([0, 0, 1, 1]), CENTERS).total.backward()
    assert embedding.grad is None
    assert raw.grad is not None
    assert (raw.grad != 0).all()


def test_a_batch_without_a_pair_has_no_loss() -> None:
    raw = torch.zeros(3, SIZE, requires_grad=True)
    outputs = {"embedding": torch.randn(3, SIZE), "log_variance": raw}
    # No two images of one person, but one image twice.
    loss = method().loss(outputs, batch([0, 1, 1], [0, 1, 1]), CENTERS)
    loss.total.backward()
    assert loss.total.item() == 0
    assert raw.grad is not None
    assert not raw.grad.any()


def test_images_far_from_their_identity_learn_a_larger_variance() -> None:
    torch.manual_seed(2)
    center = F.normalize(torch.randn(1, SIZE))
    embedding = torch.cat([center + 0.02 * torch.randn(6, SIZE), center + 0.8 * torch.randn(2, SIZE)])
    raw = torch.zeros(8, SIZE, requires_grad=True)
    optimizer = torch.optim.SGD([raw], lr=1.0)
    for _ in range(300):
        loss = method().loss({"embedding": embedding, "log_variance": raw}, batch([0] * 8), CENTERS)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
    quality = method().score({"embedding": embedding, "log_variance": raw.detach()})["quality"]
    assert quality[:6].min() > quality[6:].max()


def test_the_score_is_the_harmonic_mean_of_the_variances() -> None:
    raw = torch.tensor([[0.0] * SIZE, [math.log(2.0), 0, 0, 0, 0, 0]])
    scored = method().score({"embedding": torch.randn(2, SIZE), "log_variance": raw})
    np.testing.assert_allclose(
        scored["uncertainty"], [1 / 6, stats.hmean([2.0, 1, 1, 1, 1, 1]) / 6], rtol=1e-5
    )
    assert torch.equal(scored["quality"], -scored["uncertainty"])
    assert scored["variance"].shape == (2, SIZE)
    torch.testing.assert_close(scored["embedding"].norm(dim=1), torch.ones(2))


def test_the_head_has_a_batch_norm_and_a_variance_for_each_dimension() -> None:
    head = method().heads()["log_variance"]
    assert (head.size, head.batch_norm) == (SIZE, True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("where", [1.0, -1.0, 0.0], ids=["own center", "opposite", "zero"])
@pytest.mark.parametrize("log_variance", [-1000.0, 0.0, 1000.0])
def test_loss_and_gradients_are_finite_at_the_ends(
    dtype: torch.dtype, where: float, log_variance: float
) -> None:
    embedding = (where * F.normalize(CENTERS.weight.detach())).to(dtype).float()
    raw = torch.full((5, SIZE), log_variance, requires_grad=True)
    outputs = {"embedding": embedding, "log_variance": raw}
    loss = method().loss(outputs, batch([0, 0, 0, 1, 1]), CENTERS)
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert raw.grad is not None
    assert torch.isfinite(raw.grad).all()
