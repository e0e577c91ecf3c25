from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.methods import METHODS, Batch
from facerts.training.methods.relaxed_softmax import MIN_ALPHA, RelaxedSoftmax, inverse_temperature


def batch(size: int) -> Batch:
    return Batch(torch.arange(size) % 5, torch.arange(size), step=0, seed=1)


def method(**settings: float) -> RelaxedSoftmax:
    return RelaxedSoftmax(RelaxedSoftmax.Config(**settings), 6)


def test_alpha_is_one_at_zero_positive_and_rising() -> None:
    x = torch.linspace(-200, 200, 4001, dtype=torch.float64).unsqueeze(1)
    alpha = inverse_temperature(x)
    assert alpha[2000].item() == pytest.approx(1, abs=1e-12)
    assert (alpha >= MIN_ALPHA).all()
    assert (alpha.diff() >= 0).all()
    assert torch.isfinite(1 / alpha).all()


def test_an_alpha_of_one_is_arcface() -> None:
    torch.manual_seed(0)
    centers, embedding = ClassCenters(5, 6), torch.randn(8, 6)
    outputs = {"embedding": embedding, "confidence": torch.zeros(8, 1)}
    arcface = METHODS["arcface"](METHODS["arcface"].Config(), 6)
    torch.testing.assert_close(
        method().loss(outputs, batch(8), centers).total, arcface.loss(outputs, batch(8), centers).total
    )


def test_alpha_multiplies_all_logits_of_its_image() -> None:
    torch.manual_seed(1)
    centers = ClassCenters(5, 6).double()
    embedding = torch.randn(5, 6, dtype=torch.float64)
    x = torch.randn(5, 1, dtype=torch.float64)
    cosine = F.normalize(embedding) @ F.normalize(centers.weight).T
    own = torch.eye(5, dtype=torch.bool)
    shifted = torch.where(own, torch.cos(torch.arccos(cosine) + 0.2), cosine)
    alpha = torch.log(1 + (torch.e - 1) * x.exp())
    expected = F.cross_entropy(alpha * 8 * shifted, torch.arange(5))
    outputs = {"embedding": embedding, "confidence": x}
    loss = method(logit_scale=8, margin=0.2).loss(outputs, batch(5), centers)
    torch.testing.assert_close(loss.total, expected)


def test_the_loss_by_gradcheck() -> None:
    torch.manual_seed(2)
    centers = ClassCenters(5, 6).double()

    def total(embedding: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        outputs = {"embedding": embedding, "confidence": x}
        return method(logit_scale=8).loss(outputs, batch(4), centers).total

    embedding = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    x = torch.randn(4, 1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(total, (embedding, x))


def test_the_loss_raises_confidence_only_where_the_right_identity_wins() -> None:
    centers = ClassCenters(5, 6)
    embedding = F.normalize(centers.weight.detach())[[0, 2]]  # of 0, which wins; of 1, which 2 beats
    x = torch.zeros(2, 1, requires_grad=True)
    outputs = {"embedding": embedding, "confidence": x}
    method(logit_scale=8, margin=0.1).loss(outputs, batch(2), centers).total.backward()
    assert x.grad is not None
    assert x.grad[0] < 0 < x.grad[1]


def test_quality_is_alpha_and_uncertainty_the_temperature() -> None:
    scored = method().score({"embedding": torch.randn(3, 6), "confidence": torch.tensor([[-1.0], [0], [2]])})
    assert (scored["quality"].diff() > 0).all()
    assert (scored["uncertainty"].diff() < 0).all()
    torch.testing.assert_close(scored["quality"][1], torch.tensor(1.0))
    torch.testing.assert_close(scored["quality"] * scored["uncertainty"], torch.ones(3))


def test_the_head_has_a_batch_norm() -> None:
    head = method().heads()["confidence"]
    assert (head.size, head.batch_norm) == (1, True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("where", [1.0, -1.0, 0.0], ids=["own center", "opposite", "zero"])
@pytest.mark.parametrize("x", [-1000.0, 0.0, 1000.0])
def test_loss_and_gradients_are_finite_at_the_ends(dtype: torch.dtype, where: float, x: float) -> None:
    centers = ClassCenters(5, 6)
    embedding = (where * F.normalize(centers.weight.detach())).to(dtype).float().requires_grad_()
    confidence = torch.full((5, 1), x, requires_grad=True)
    loss = method().loss({"embedding": embedding, "confidence": confidence}, batch(5), centers)
    loss.total.backward()
    assert torch.isfinite(loss.total)
    for tensor in (embedding, confidence, centers.weight):
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()
