from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.methods import Batch
from facerts.training.methods.arcface import ArcFace
from facerts.training.methods.base import MarginConfig
from facerts.training.methods.magface import MagFace, MagFaceConfig, adaptive_margin, magnitude, regularizer

DEFAULTS = MagFaceConfig()
NO_MARGIN = MagFaceConfig(lower_margin=0.0, upper_margin=0.0, regularizer_weight=0.0)


def batch(labels: list[int], ramp: float = 1.0) -> Batch:
    return Batch(torch.tensor(labels), torch.arange(len(labels)), step=3, seed=7, ramp=ramp)


def of_lengths(*lengths: float) -> Tensor:
    directions = F.normalize(torch.randn(len(lengths), 6, dtype=torch.float64))
    return directions * torch.tensor(lengths, dtype=torch.float64).unsqueeze(1)


def test_the_regularizer_is_convex_and_minimal_at_the_upper_norm() -> None:
    a = torch.linspace(10, 110, 2001, dtype=torch.float64, requires_grad=True)
    g = regularizer(a, DEFAULTS)
    (slope,) = torch.autograd.grad(g.sum(), a)
    torch.testing.assert_close(slope, 1 / 110**2 - 1 / a.detach() ** 2, rtol=1e-9, atol=1e-15)
    assert g.argmin() == 2000
    assert slope[-1].abs() < 1e-15
    assert (g.detach().diff().diff() > 0).all()


def test_the_margin_is_linear_between_its_ends() -> None:
    a = torch.tensor([10.0, 60.0, 85.0, 110.0], dtype=torch.float64)
    expected = torch.tensor([0.45, 0.625, 0.7125, 0.8], dtype=torch.float64)
    torch.testing.assert_close(adaptive_margin(a, DEFAULTS), expected)


def test_norms_are_clipped_and_only_those_inside_get_a_gradient() -> None:
    embedding = of_lengths(0.0, 9.9, 10.1, 60.0, 109.9, 110.1, 500.0).requires_grad_()
    a = magnitude(embedding, DEFAULTS)
    expected = torch.tensor([10.0, 10.0, 10.1, 60.0, 109.9, 110.0, 110.0], dtype=torch.float64)
    torch.testing.assert_close(a, expected)
    (slope,) = torch.autograd.grad(a.sum(), embedding)
    assert (slope.norm(dim=1) > 0.99).tolist() == [False, False, True, True, True, False, False]
    assert torch.equal(slope[[0, 1, 5, 6]], torch.zeros(4, 6, dtype=torch.float64))


@pytest.mark.parametrize("ramp", [1.0, 0.5])
def test_against_a_slow_reading_of_the_paper(ramp: float) -> None:
    torch.manual_seed(0)
    centers, embedding = ClassCenters(7, 6).double(), of_lengths(3, 20, 70, 200)
    labels = [0, 6, 3, 3]
    losses = []
    for row, label in zip(embedding, labels, strict=True):
        a = min(max(math.sqrt(sum(float(y) ** 2 for y in row)), 10.0), 110.0)
        cosines = [float(torch.dot(row, w) / row.norm() / w.norm()) for w in centers.weight.detach()]
        angle = math.acos(cosines[label]) + ramp * (0.45 + 0.35 * (a - 10) / 100)
        assert angle < math.pi
        own = math.exp(16 * math.cos(angle))
        others = sum(math.exp(16 * cosine) for j, cosine in enumerate(cosines) if j != label)
        losses.append(-math.log(own / (own + others)) + 35 * (a / 12100 + 1 / a))
    loss = MagFace(MagFaceConfig(logit_scale=16.0)).loss(
        {"embedding": embedding}, batch(labels, ramp), centers
    )
    assert loss.total.item() == pytest.approx(sum(losses) / 4, rel=1e-9)


def test_without_margins_it_is_scaled_cosine_softmax() -> None:
    torch.manual_seed(1)
    centers, embedding = ClassCenters(9, 6).double(), of_lengths(3, 20, 70, 200)
    labels = [0, 8, 3, 3]
    loss = MagFace(NO_MARGIN).loss({"embedding": embedding}, batch(labels), centers)
    logits = 64 * F.normalize(embedding) @ F.normalize(centers.weight).T
    torch.testing.assert_close(loss.total, F.cross_entropy(logits, torch.tensor(labels)))


def test_with_equal_margins_and_no_regularizer_it_is_arcface() -> None:
    torch.manual_seed(2)
    centers, outputs = ClassCenters(9, 6).double(), {"embedding": of_lengths(3, 20, 70, 200)}
    config = MagFaceConfig(lower_margin=0.5, upper_margin=0.5, regularizer_weight=0.0)
    arcface = ArcFace(MarginConfig(margin=0.5))
    torch.testing.assert_close(
        MagFace(config).loss(outputs, batch([0, 8, 3, 3]), centers).total,
        arcface.loss(outputs, batch([0, 8, 3, 3]), centers).total,
    )


def test_the_whole_loss_by_gradcheck() -> None:
    torch.manual_seed(3)
    centers = ClassCenters(7, 6).double()
    method = MagFace(MagFaceConfig(logit_scale=8.0))
    embedding = of_lengths(4, 20, 70, 150).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda y: method.loss({"embedding": y}, batch([0, 1, 2, 3]), centers).total, (embedding,)
    )


@pytest.mark.parametrize("gradient", ["exact", "straight"])
def test_the_norm_gets_its_gradient_from_margin_and_regularizer(gradient: str) -> None:
    # Along y the cosines are constant and only a changes: dL/da = (1 − p) γ sin(θ + m) K + λ g'(a), by hand.
    torch.manual_seed(4)
    centers = ClassCenters(7, 6).double()
    embedding = of_lengths(50.0).requires_grad_()
    method = MagFace(MagFaceConfig(logit_scale=8.0, margin_gradient=gradient))
    loss = method.loss({"embedding": embedding}, batch([2]), centers)
    (slope,) = torch.autograd.grad(loss.total, embedding)
    along = (slope * F.normalize(embedding.detach())).sum()
    angles = torch.arccos(F.normalize(embedding.detach()) @ F.normalize(centers.weight.detach()).T)[0]
    shifted = angles[2] + 0.45 + 0.35 * 40 / 100
    assert shifted < math.pi
    logits = 8.0 * angles.cos()
    logits[2] = 8.0 * shifted.cos()
    p = logits.softmax(dim=0)[2]
    expected = (1 - p) * 8.0 * shifted.sin() * 0.0035 + 35 * (1 / 12100 - 1 / 2500)
    torch.testing.assert_close(along, expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize("gradient", ["exact", "straight"])
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [1.0, -1.0, 20.0, -20.0, 300.0, 0.0])
def test_loss_and_gradients_are_finite_at_the_ends(gradient: str, half: torch.dtype, length: float) -> None:
    torch.manual_seed(5)
    centers = ClassCenters(5, 8)
    embedding = (length * F.normalize(centers.weight.detach())).to(half).float().requires_grad_()
    method = MagFace(MagFaceConfig(margin_gradient=gradient))
    loss = method.loss({"embedding": embedding}, batch([0, 1, 2, 3, 4]), centers)
    loss.total.backward()  # type: ignore[no-untyped-call]
    for value in (loss.total, embedding.grad, centers.weight.grad):
        assert value is not None
        assert torch.isfinite(value).all()


def test_the_optimal_norm_grows_with_the_cosine() -> None:
    # The paper's property: a single optimal norm, which grows with the cosine to the center.
    torch.manual_seed(6)
    centers = F.normalize(torch.eye(6, dtype=torch.float64))
    whole = ClassCenters(6, 6).double()
    whole.weight.data = centers
    angles = torch.tensor([0.2, 0.5, 0.8, 1.1], dtype=torch.float64)
    directions = torch.stack([t.cos() * centers[0] + t.sin() * centers[1] for t in angles])
    lengths = torch.full((4,), 40.0, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([lengths], lr=0.5)
    method = MagFace(MagFaceConfig())
    for _ in range(400):
        loss = method.loss({"embedding": directions * lengths.unsqueeze(1)}, batch([0, 0, 0, 0]), whole)
        optimizer.zero_grad()
        loss.total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    fitted = lengths.detach()
    assert (fitted.diff() <= 1e-6).all()
    assert fitted[0] > fitted[-1] + 10


def test_quality_is_the_unclipped_norm() -> None:
    scored = MagFace(DEFAULTS).score({"embedding": torch.tensor([[3.0, 4.0], [300.0, 400.0]])})
    torch.testing.assert_close(scored["quality"], torch.tensor([5.0, 500.0]))
    torch.testing.assert_close(scored["uncertainty"], torch.tensor([-5.0, -500.0]))


@pytest.mark.parametrize(
    "settings",
    [
        {"lower_norm": 110},
        {"lower_norm": 0},
        {"lower_margin": 0.9},
        {"regularizer_weight": -1},
        {"margin": 0},
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        MagFaceConfig(**settings)
