from __future__ import annotations

import pytest
import torch
from torch import Tensor

from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.methods.arcface import ArcFace
from facerts.training.methods.crfiqa import CRFIQA, CRFIQAConfig, certainty_ratio
from facerts.training.methods.method import MarginConfig
from facerts.training.nn.twin_heads import HeadSpec
from tests.losses import batch_of, dot, units


def slow_ratios(embedding: Tensor, labels: list[int], centers: ClassCenters) -> list[float]:
    ratios = []
    for row, label in zip(units(embedding), labels, strict=True):
        cosines = [dot(row, center) for center in units(centers.weight)]
        nearest = max(cosine for j, cosine in enumerate(cosines) if j != label)
        ratios.append(cosines[label] / (nearest + 1 + 1e-9))
    return ratios


def test_ratios_worked_out_by_hand() -> None:
    own = torch.tensor([0.8, -0.5, 0.0, 1.0], dtype=torch.float64)
    nearest = torch.tensor([0.0, 0.25, 0.3, -1.0], dtype=torch.float64)
    expected = torch.tensor([0.8 / (1 + 1e-9), -0.5 / (1.25 + 1e-9), 0.0, 1e9], dtype=torch.float64)
    torch.testing.assert_close(certainty_ratio(own, nearest), expected, rtol=1e-12, atol=0)
    # Rounded past −1, the ratio keeps its sign.
    assert certainty_ratio(torch.tensor([0.5]), torch.tensor([-1.0000001])) > 0


@pytest.mark.parametrize("ramp", [1.0, 0.0])
def test_against_arcface_and_a_slow_smooth_l1(ramp: float) -> None:
    torch.manual_seed(0)
    centers, embedding = ClassCenters(7, 5).double(), torch.randn(4, 5, dtype=torch.float64)
    labels = [0, 6, 3, 3]
    ratios = slow_ratios(embedding, labels, centers)
    # Errors on both sides of β, and of either sign.
    errors = [0.1, -0.4, 0.7, -2.0]
    r = torch.tensor([[ratio + error] for ratio, error in zip(ratios, errors, strict=True)])
    regression = (0.1**2 + 0.4**2 + (0.7 - 0.25) + (2.0 - 0.25)) / 4
    batch = batch_of(labels, ramp=ramp)
    plain = ArcFace(MarginConfig()).loss({"embedding": embedding}, batch, centers)
    loss = CRFIQA(CRFIQAConfig()).loss(
        {"embedding": embedding, "certainty_ratio": r.double()}, batch, centers
    )
    assert loss.total.item() == pytest.approx(plain.total.item() + 10 * regression, rel=1e-6)
    assert loss.parts["regression"].item() == pytest.approx(regression, rel=1e-6)
    assert loss.per_image["certainty_ratio"].tolist() == pytest.approx(ratios, rel=1e-9)


def test_the_cosine_may_be_the_target() -> None:
    torch.manual_seed(0)
    centers, embedding = ClassCenters(7, 5).double(), torch.randn(4, 5, dtype=torch.float64)
    labels = [0, 6, 3, 3]
    own = [
        dot(row, units(centers.weight)[label]) for row, label in zip(units(embedding), labels, strict=True)
    ]
    r = torch.tensor([[cosine + 0.3] for cosine in own], dtype=torch.float64)
    method, batch = CRFIQA(CRFIQAConfig(target="cosine")), batch_of(labels)
    outputs = {"embedding": embedding, "own_cosine": r}
    loss = method.loss(outputs, batch, centers)
    assert set(method.heads()) == {"own_cosine"}
    assert loss.parts["regression"].item() == pytest.approx(0.3**2, rel=1e-9)
    assert loss.per_image["own_cosine"].tolist() == pytest.approx(own, rel=1e-9)
    torch.testing.assert_close(method.score(outputs)["quality"], r.squeeze(1))


def test_no_gradient_flows_through_the_target() -> None:
    torch.manual_seed(2)
    centers, batch = ClassCenters(7, 5).double(), batch_of([0, 1, 2])
    embedding = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    r = torch.zeros(3, 1, dtype=torch.float64, requires_grad=True)
    inputs, outputs = (embedding, centers.weight), {"embedding": embedding, "certainty_ratio": r}
    plain = torch.autograd.grad(ArcFace(MarginConfig()).loss(outputs, batch, centers).total, inputs)
    loss = CRFIQA(CRFIQAConfig()).loss(outputs, batch, centers).total
    *actual, slope = torch.autograd.grad(loss, (*inputs, r))
    for gradient, expected in zip(actual, plain, strict=True):
        torch.testing.assert_close(gradient, expected)
    # SmoothL1's slope is e/β within β and its sign beyond; the mean divides by 3, λ is 10.
    error = -torch.tensor(slow_ratios(embedding, [0, 1, 2], centers), dtype=torch.float64)
    torch.testing.assert_close(slope.squeeze(1), 10 / 3 * (error / 0.5).clamp(-1, 1), rtol=1e-7, atol=1e-12)


def test_opposite_centers_give_a_finite_loss() -> None:
    centers = ClassCenters(2, 8)
    # The nearest other cosine is −1, where the divisor of the ratio is minimal.
    centers.weight.data[1] = -centers.weight.data[0]
    r = torch.zeros(2, 1, requires_grad=True)
    outputs = {"embedding": 20 * centers.weight.detach(), "certainty_ratio": r}
    loss = CRFIQA(CRFIQAConfig()).loss(outputs, batch_of([0, 1]), centers).total
    (slope,) = torch.autograd.grad(loss, r)
    assert loss.isfinite()
    assert slope.isfinite().all()


def test_quality_is_the_heads_output() -> None:
    method = CRFIQA(CRFIQAConfig())
    assert method.heads() == {"certainty_ratio": HeadSpec(1, reads="embedding")}
    outputs = {"embedding": torch.randn(2, 4), "certainty_ratio": torch.tensor([[0.2], [0.9]])}
    scored = method.score(outputs)
    assert scored["quality"].tolist() == pytest.approx([0.2, 0.9])
    assert scored["uncertainty"].tolist() == pytest.approx([-0.2, -0.9])
