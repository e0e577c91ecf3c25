from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.methods import Batch
from facerts.training.methods.cosface import CosFace, CosFaceConfig


def batch(labels: list[int], ramp: float = 1.0) -> Batch:
    return Batch(torch.tensor(labels), torch.arange(len(labels)), step=3, seed=7, ramp=ramp)


def test_against_a_slow_reading_of_equation_4() -> None:
    torch.manual_seed(0)
    centers, embedding = ClassCenters(7, 5).double(), torch.randn(4, 5, dtype=torch.float64)
    labels = [0, 6, 3, 3]
    losses = []
    for row, label in zip(embedding, labels, strict=True):
        cosines = [float(torch.dot(row, w) / row.norm() / w.norm()) for w in centers.weight.detach()]
        own = math.exp(16 * (cosines[label] - 0.35))
        others = sum(math.exp(16 * cosine) for j, cosine in enumerate(cosines) if j != label)
        losses.append(-math.log(own / (own + others)))
    loss = CosFace(CosFaceConfig(logit_scale=16.0)).loss({"embedding": embedding}, batch(labels), centers)
    assert loss.total.item() == pytest.approx(sum(losses) / 4, rel=1e-9)


def test_without_margin_it_is_scaled_cosine_softmax() -> None:
    torch.manual_seed(1)
    centers, embedding = ClassCenters(9, 6).double(), torch.randn(4, 6, dtype=torch.float64)
    labels = [0, 8, 3, 3]
    loss = CosFace(CosFaceConfig(margin=0.0)).loss({"embedding": embedding}, batch(labels), centers)
    logits = 64 * F.normalize(embedding) @ F.normalize(centers.weight).T
    torch.testing.assert_close(loss.total, F.cross_entropy(logits, torch.tensor(labels)))


def test_the_ramp_scales_the_margin() -> None:
    torch.manual_seed(2)
    centers, outputs = ClassCenters(7, 5), {"embedding": torch.randn(2, 5)}
    ramped = CosFace(CosFaceConfig(margin=0.4)).loss(outputs, batch([1, 2], ramp=0.5), centers)
    half = CosFace(CosFaceConfig(margin=0.2)).loss(outputs, batch([1, 2]), centers)
    full = CosFace(CosFaceConfig(margin=0.4)).loss(outputs, batch([1, 2]), centers)
    torch.testing.assert_close(ramped.total, half.total)
    assert full.total > half.total


def test_the_whole_loss_by_gradcheck() -> None:
    torch.manual_seed(3)
    centers = ClassCenters(7, 6).double()
    method = CosFace(CosFaceConfig(logit_scale=8.0))
    embedding = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda y: method.loss({"embedding": y}, batch([0, 1, 2]), centers).total, (embedding,)
    )


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("factor", [1.0, -1.0, 0.0])
def test_loss_and_gradients_are_finite_at_the_ends(half: torch.dtype, factor: float) -> None:
    torch.manual_seed(4)
    centers = ClassCenters(5, 8)
    embedding = (20 * factor * F.normalize(centers.weight.detach())).to(half).float().requires_grad_()
    loss = CosFace(CosFaceConfig()).loss({"embedding": embedding}, batch([0, 1, 2, 3, 4]), centers)
    loss.total.backward()  # type: ignore[no-untyped-call]
    for value in (loss.total, embedding.grad, centers.weight.grad):
        assert value is not None
        assert torch.isfinite(value).all()


def test_quality_is_the_norm() -> None:
    embedding = torch.tensor([[3.0, 4.0], [0.6, 0.8]])
    scored = CosFace(CosFaceConfig()).score({"embedding": embedding})
    torch.testing.assert_close(scored["quality"], torch.tensor([5.0, 1.0]))
    torch.testing.assert_close(scored["uncertainty"], torch.tensor([-5.0, -1.0]))
    torch.testing.assert_close(scored["embedding"], torch.tensor([[0.6, 0.8], [0.6, 0.8]]))


@pytest.mark.parametrize("settings", [{"margin": -0.1}, {"logit_scale": 0}, {"margin_gradient": "exact"}])
def test_impossible_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        CosFaceConfig(**settings)
