from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.methods import METHODS, Batch, ClassificationMethod
from facerts.training.methods.margin import additive_angular

MARGIN = 0.5


def batch(labels: list[int], **options: object) -> Batch:
    return Batch(torch.tensor(labels), torch.arange(len(labels)), step=3, seed=7, **options)  # type: ignore[arg-type]


def test_angles_worked_out_by_hand() -> None:
    cosine = torch.tensor([1.0, 0.5, 0.0, -0.5], dtype=torch.float64)
    expected = [math.cos(0.5), math.cos(math.pi / 3 + 0.5), math.cos(math.pi / 2 + 0.5)]
    expected.append(math.cos(2 * math.pi / 3 + 0.5))
    np.testing.assert_allclose(additive_angular(cosine, MARGIN), expected, atol=1e-5)


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.5, 1.0])
def test_the_logit_never_rises_with_the_angle(margin: float) -> None:
    angle = torch.linspace(0, math.pi, 20001, dtype=torch.float64)
    logit = additive_angular(angle.cos(), margin)
    assert (logit.diff() <= 1e-9).all()


def test_past_the_end_of_the_angle_the_fallback_takes_over() -> None:
    angle = torch.tensor([math.pi - 0.5 + 1e-6, math.pi], dtype=torch.float64)
    np.testing.assert_allclose(
        additive_angular(angle.cos(), MARGIN), angle.cos() - MARGIN * math.sin(MARGIN), atol=1e-12
    )


def test_the_gradient_is_that_of_the_formula() -> None:
    jump = math.pi - MARGIN
    angle = torch.linspace(1e-3, math.pi - 1e-3, 400, dtype=torch.float64)
    angle = angle[(angle - jump).abs() > 1e-2].requires_grad_()
    assert torch.autograd.gradcheck(lambda theta: additive_angular(theta.cos(), MARGIN), angle, eps=1e-7)
    logit = additive_angular(angle.cos(), MARGIN)
    (slope,) = torch.autograd.grad(logit.sum(), angle)
    inside = angle < jump
    np.testing.assert_allclose(
        slope[inside].detach(), -torch.sin(angle + MARGIN)[inside].detach(), rtol=1e-5, atol=1e-7
    )


def test_the_straight_gradient_is_one_in_the_cosine_and_the_value_is_the_same() -> None:
    cosine = torch.linspace(-0.99, 0.99, 101, dtype=torch.float64, requires_grad=True)
    straight = additive_angular(cosine, MARGIN, "straight")
    np.testing.assert_allclose(
        straight.detach(), additive_angular(cosine.detach(), MARGIN), rtol=0, atol=1e-15
    )
    (slope,) = torch.autograd.grad(straight.sum(), cosine)
    assert torch.equal(slope, torch.ones_like(slope))


@pytest.mark.parametrize("gradient", ["exact", "straight"])
def test_a_learned_margin_gets_its_gradient_in_both_modes(gradient: str) -> None:
    margin = torch.tensor([0.2, 0.7], dtype=torch.float64, requires_grad=True)
    angle = torch.tensor([0.4, 1.1], dtype=torch.float64)
    logit = additive_angular(angle.cos(), margin, gradient)  # type: ignore[arg-type]
    (slope,) = torch.autograd.grad(logit.sum(), margin)
    np.testing.assert_allclose(slope, -torch.sin(angle + margin.detach()), rtol=1e-7)


def test_a_margin_of_lower_precision_does_not_lower_that_of_the_logit() -> None:
    cosine = torch.tensor([0.9, 0.1, -0.3])
    margin = torch.tensor([0.25, 0.5, 1.0], dtype=torch.bfloat16)
    torch.testing.assert_close(
        additive_angular(cosine, margin), additive_angular(cosine, margin.float()), rtol=0, atol=0
    )


@pytest.mark.parametrize(
    "method", [name for name, method in METHODS.items() if issubclass(method, ClassificationMethod)]
)
@pytest.mark.parametrize("where", ["own center", "opposite", "zero"])
def test_loss_and_gradient_are_finite_at_the_ends(method: str, where: str) -> None:
    torch.manual_seed(0)
    centers = ClassCenters(5, 4)
    embedding = (
        F.normalize(centers.weight.detach()[:3]) * {"own center": 1.0, "opposite": -1.0, "zero": 0.0}[where]
    )
    embedding = embedding.requires_grad_()
    built = METHODS[method](METHODS[method].Config(), embedding_size=4)
    outputs = {
        "embedding": embedding,
        **{name: torch.zeros(3, head.size) for name, head in built.heads().items()},
    }
    loss = built.loss(outputs, batch([0, 1, 2]), centers)
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert torch.isfinite(embedding.grad).all()  # type: ignore[arg-type]
    assert torch.isfinite(centers.weight.grad).all()  # type: ignore[arg-type]


def test_without_margin_arcface_is_scaled_cosine_softmax() -> None:
    torch.manual_seed(1)
    centers = ClassCenters(9, 6).double()
    embedding = torch.randn(4, 6, dtype=torch.float64)
    labels = [0, 8, 3, 3]
    method = METHODS["arcface"](METHODS["arcface"].Config(margin=0.0, logit_scale=64.0))
    loss = method.loss({"embedding": embedding}, batch(labels), centers)
    logits = 64 * F.normalize(embedding) @ F.normalize(centers.weight).T
    torch.testing.assert_close(loss.total, F.cross_entropy(logits, torch.tensor(labels)))


def test_arcface_against_a_slow_reading_of_equation_3() -> None:
    torch.manual_seed(2)
    centers = ClassCenters(7, 5).double()
    embedding = torch.randn(6, 5, dtype=torch.float64)
    labels = [0, 1, 2, 3, 4, 5]
    method = METHODS["arcface"](METHODS["arcface"].Config(margin=0.3, logit_scale=16.0))
    losses = []
    for row, label in zip(embedding, labels, strict=True):
        cosines = [float(torch.dot(row, w) / row.norm() / w.norm()) for w in centers.weight.detach()]
        numerators = [math.exp(16 * cosine) for cosine in cosines]
        numerators[label] = math.exp(16 * math.cos(math.acos(cosines[label]) + 0.3))
        losses.append(-math.log(numerators[label] / sum(numerators)))
    loss = method.loss({"embedding": embedding}, batch(labels), centers).total.item()
    assert loss == pytest.approx(sum(losses) / 6, rel=1e-9)


def test_the_ramp_scales_the_margin() -> None:
    torch.manual_seed(3)
    centers = ClassCenters(7, 5)
    outputs = {"embedding": torch.randn(2, 5)}
    half = METHODS["arcface"](METHODS["arcface"].Config(margin=0.25))
    full = METHODS["arcface"](METHODS["arcface"].Config(margin=0.5))
    torch.testing.assert_close(
        full.loss(outputs, batch([1, 2], ramp=0.5), centers).total,
        half.loss(outputs, batch([1, 2]), centers).total,
    )
