from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.methods import METHODS, Batch
from facerts.training.methods.godin import GODIN, MIN_DIVISOR, divisor


def batch(size: int) -> Batch:
    return Batch(torch.arange(size) % 5, torch.arange(size), step=0, seed=1)


def method(**settings: float) -> GODIN:
    return GODIN(GODIN.Config(**settings), 6)


def test_a_divisor_of_one_is_arcface() -> None:
    torch.manual_seed(0)
    centers, embedding = ClassCenters(5, 6), torch.randn(8, 6)
    outputs = {"embedding": embedding, "divisor": torch.full((8, 1), 50.0)}
    arcface = METHODS["arcface"](METHODS["arcface"].Config(), 6)
    torch.testing.assert_close(
        method().loss(outputs, batch(8), centers).total, arcface.loss(outputs, batch(8), centers).total
    )


def test_the_divisor_divides_all_logits_of_its_image() -> None:
    torch.manual_seed(1)
    centers = ClassCenters(5, 6).double()
    embedding = torch.randn(5, 6, dtype=torch.float64)
    x = torch.randn(5, 1, dtype=torch.float64)
    cosine = F.normalize(embedding) @ F.normalize(centers.weight).T
    own = torch.eye(5, dtype=torch.bool)
    shifted = torch.where(own, torch.cos(torch.arccos(cosine) + 0.2), cosine)
    expected = F.cross_entropy(8 * shifted * (1 + (-x).exp()), torch.arange(5))
    outputs = {"embedding": embedding, "divisor": x}
    loss = method(logit_scale=8, margin=0.2).loss(outputs, batch(5), centers)
    torch.testing.assert_close(loss.total, expected)


def test_the_loss_by_gradcheck() -> None:
    torch.manual_seed(2)
    centers = ClassCenters(5, 6).double()

    def total(embedding: Tensor, x: Tensor) -> Tensor:
        outputs = {"embedding": embedding, "divisor": x}
        return method(logit_scale=8).loss(outputs, batch(4), centers).total

    embedding = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    x = torch.randn(4, 1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(total, (embedding, x))


def test_the_loss_lowers_the_divisor_only_where_the_right_identity_wins() -> None:
    centers = ClassCenters(5, 6)
    embedding = F.normalize(centers.weight.detach())[[0, 2]]  # of 0, which wins; of 1, which 2 beats
    x = torch.zeros(2, 1, requires_grad=True)
    outputs = {"embedding": embedding, "divisor": x}
    method(logit_scale=8, margin=0.1).loss(outputs, batch(2), centers).total.backward()
    assert x.grad is not None
    assert x.grad[0] > 0 > x.grad[1]


def test_a_large_divisor_is_a_poor_image() -> None:
    x = torch.tensor([[-2.0], [0.0], [3.0]])
    scored = method().score({"embedding": torch.randn(3, 6), "divisor": x})
    g = 1 / (1 + np.exp([2.0, 0.0, -3.0]))
    np.testing.assert_allclose(scored["uncertainty"], g, rtol=1e-6)
    np.testing.assert_allclose(scored["quality"], -np.log(g / (1 - g)), rtol=1e-5, atol=1e-6)


def test_qualities_differ_where_the_divisors_saturate() -> None:
    scored = method().score({"embedding": torch.randn(2, 6), "divisor": torch.tensor([[20.0], [21.0]])})
    assert scored["uncertainty"][0] == scored["uncertainty"][1]
    assert scored["quality"][0] != scored["quality"][1]


def test_the_head_has_a_batch_norm() -> None:
    head = method().heads()["divisor"]
    assert (head.size, head.batch_norm) == (1, True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("where", [1.0, -1.0, 0.0], ids=["own center", "opposite", "zero"])
@pytest.mark.parametrize("x", [-1000.0, 0.0, 1000.0])
def test_loss_and_gradients_are_finite_at_the_ends(dtype: torch.dtype, where: float, x: float) -> None:
    centers = ClassCenters(5, 6)
    embedding = (where * F.normalize(centers.weight.detach())).to(dtype).float().requires_grad_()
    raw = torch.full((5, 1), x, requires_grad=True)
    loss = method().loss({"embedding": embedding, "divisor": raw}, batch(5), centers)
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert divisor(raw).min() >= MIN_DIVISOR
    for tensor in (embedding, raw, centers.weight):
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()
