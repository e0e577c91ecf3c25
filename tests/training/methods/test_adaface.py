from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.methods import Batch, Method
from facerts.training.methods.adaface import AdaFace, AdaFaceConfig, adaptive_margin, relative_quality
from facerts.training.methods.arcface import ArcFace
from facerts.training.methods.base import MarginConfig
from facerts.training.methods.cosface import CosFace, CosFaceConfig
from facerts.training.methods.margin import MarginGradient, additive_angular, clamped_angular

M = 0.4


def batch(labels: list[int], ramp: float = 1.0) -> Batch:
    return Batch(torch.tensor(labels), torch.arange(len(labels)), step=3, seed=7, ramp=ramp)


def of_lengths(*lengths: float) -> Tensor:
    directions = F.normalize(torch.randn(len(lengths), 6, dtype=torch.float64))
    return directions * torch.tensor(lengths, dtype=torch.float64).unsqueeze(1)


def with_statistics(mean: float, std: float, **settings: float | str) -> AdaFace:
    """A method whose μ and σ hardly change."""
    method = AdaFace(AdaFaceConfig(momentum=1 - 1e-12, **settings))
    method.state.mean.fill_(mean)
    method.state.std.fill_(std)
    return method


@pytest.mark.parametrize("gradient", ["exact", "straight"])
@pytest.mark.parametrize("z", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_the_clamped_angle_is_the_arccosine_clamped(z: float, gradient: MarginGradient) -> None:
    angle = torch.linspace(1e-4, math.pi - 1e-4, 4001, dtype=torch.float64)
    shift = torch.full_like(angle, -M * z)
    expected = torch.cos((angle + shift).clamp(0, math.pi))
    torch.testing.assert_close(clamped_angular(angle.cos(), shift, gradient), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("shift", [-0.4, 0.0, 0.4])
def test_the_gradient_is_that_of_the_clamped_formula(shift: float) -> None:
    angle = torch.linspace(1e-3, math.pi - 1e-3, 400, dtype=torch.float64)
    ends = torch.minimum((angle + shift).abs(), (angle + shift - math.pi).abs())
    angle = angle[ends > 1e-2].requires_grad_()
    shifts = torch.full_like(angle, shift)
    assert torch.autograd.gradcheck(lambda theta: clamped_angular(theta.cos(), shifts), angle, eps=1e-7)
    (slope,) = torch.autograd.grad(clamped_angular(angle.cos(), shifts).sum(), angle)
    shifted = angle.detach() + shift
    inside = (shifted > 0) & (shifted < math.pi)
    expected = torch.where(inside, -shifted.sin(), 0.0)
    torch.testing.assert_close(slope, expected, rtol=1e-5, atol=1e-7)
    assert inside.all() == (shift == 0)


def test_the_straight_gradient_is_one_everywhere() -> None:
    cosine = torch.linspace(-1, 1, 101, dtype=torch.float64, requires_grad=True)
    z = torch.linspace(-1, 1, 101, dtype=torch.float64)
    (slope,) = torch.autograd.grad(adaptive_margin(cosine, z, M, "straight").sum(), cosine)
    assert torch.equal(slope, torch.ones_like(slope))


@pytest.mark.parametrize("z", [-1.0, -0.3, 0.0, 0.7, 1.0])
def test_the_logit_never_rises_with_the_angle(z: float) -> None:
    angle = torch.linspace(0, math.pi, 20001, dtype=torch.float64)
    logit = adaptive_margin(angle.cos(), torch.full_like(angle, z), M)
    assert (logit.diff() <= 1e-9).all()


def test_margins_worked_out_by_hand() -> None:
    cosine = torch.full((3,), 0.5, dtype=torch.float64)
    f = adaptive_margin(cosine, torch.tensor([-1.0, 0.0, 0.5], dtype=torch.float64), M)
    third = math.pi / 3
    expected = [math.cos(third + 0.4), 0.5 - 0.4, math.cos(third - 0.2) - 0.6]
    torch.testing.assert_close(f, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=0)


def test_at_minus_one_it_is_arcface_unless_the_angle_is_clamped() -> None:
    cosine = torch.linspace(-math.cos(M) + 1e-6, 1, 501, dtype=torch.float64)
    f = adaptive_margin(cosine, -torch.ones_like(cosine), M)
    torch.testing.assert_close(f, additive_angular(cosine, M), rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("mean", "same"), [(30.0, CosFace(CosFaceConfig(margin=M))), (60.0, ArcFace(MarginConfig(margin=M)))]
)
def test_the_loss_at_zero_is_cosface_and_at_minus_one_arcface(mean: float, same: Method) -> None:
    torch.manual_seed(0)
    centers, outputs = ClassCenters(9, 6).double(), {"embedding": of_lengths(30, 30, 30, 30)}
    step_batch = batch([0, 8, 3, 3])
    loss = with_statistics(mean, 2.0).loss(outputs, step_batch, centers)
    torch.testing.assert_close(loss.total, same.loss(outputs, step_batch, centers).total)


def test_without_margin_it_is_scaled_cosine_softmax() -> None:
    torch.manual_seed(1)
    centers, embedding = ClassCenters(9, 6).double(), of_lengths(3, 20, 70, 200)
    labels = [0, 8, 3, 3]
    loss = with_statistics(40.0, 20.0, margin=0.0).loss({"embedding": embedding}, batch(labels), centers)
    logits = 64 * F.normalize(embedding) @ F.normalize(centers.weight).T
    torch.testing.assert_close(loss.total, F.cross_entropy(logits, torch.tensor(labels)))


@pytest.mark.parametrize("ramp", [1.0, 0.5])
def test_against_a_slow_reading_of_the_paper(ramp: float) -> None:
    torch.manual_seed(2)
    centers, lengths, labels = ClassCenters(7, 6).double(), (12.0, 22.0, 31.0, 150.0), [0, 6, 3, 3]
    embedding = of_lengths(*lengths)
    clipped = [12.0, 22.0, 31.0, 100.0]
    batch_mean = sum(clipped) / 4
    batch_std = math.sqrt(sum((a - batch_mean) ** 2 for a in clipped) / 4)
    mean, std = 0.99 * 20 + 0.01 * batch_mean, 0.99 * 100 + 0.01 * batch_std
    losses = []
    for row, a, label in zip(embedding, clipped, labels, strict=True):
        z = min(max((a - mean) / (std / 0.33), -1.0), 1.0)
        cosines = [float(torch.dot(row, w) / row.norm() / w.norm()) for w in centers.weight.detach()]
        angle = min(max(math.acos(cosines[label]) - ramp * M * z, 0.0), math.pi)
        own = math.exp(16 * (math.cos(angle) - ramp * (M * z + M)))
        others = sum(math.exp(16 * cosine) for j, cosine in enumerate(cosines) if j != label)
        losses.append(-math.log(own / (own + others)))
    method = AdaFace(AdaFaceConfig(logit_scale=16.0))
    loss = method.loss({"embedding": embedding}, batch(labels, ramp), centers)
    # μ and σ are kept in float32.
    assert loss.total.item() == pytest.approx(sum(losses) / 4, rel=1e-6)
    assert method.state.mean.item() == pytest.approx(mean, rel=1e-6)
    assert method.state.std.item() == pytest.approx(std, rel=1e-6)


def test_relative_quality_is_clipped_and_finite_for_equal_norms() -> None:
    norm = torch.tensor([10.0, 20.0, 26.0, 90.0])
    z = relative_quality(norm, torch.tensor(20.0), torch.tensor(3.3), 0.33)
    torch.testing.assert_close(z, torch.tensor([-1.0, 0.0, 0.6, 1.0]))
    z = relative_quality(norm, torch.tensor(20.0), torch.tensor(0.0), 0.33)
    assert z.tolist() == [-1.0, 0.0, 1.0, 1.0]


def test_no_gradient_flows_through_the_norm() -> None:
    torch.manual_seed(3)
    centers, embedding = ClassCenters(7, 6).double(), of_lengths(12, 22, 31).requires_grad_()
    loss = with_statistics(20.0, 10.0).loss({"embedding": embedding}, batch([0, 1, 2]), centers)
    (slope,) = torch.autograd.grad(loss.total, embedding)
    along = (slope * F.normalize(embedding.detach())).sum(dim=1)
    assert (slope.norm(dim=1) > 1e-3).all()
    torch.testing.assert_close(along, torch.zeros_like(along), rtol=0, atol=1e-12)


def test_only_training_changes_the_statistics() -> None:
    torch.manual_seed(4)
    centers, outputs = ClassCenters(7, 6), {"embedding": of_lengths(40, 40, 40).float()}
    method = AdaFace(AdaFaceConfig())
    assert method.state.state_dict().keys() == {"mean", "std"}
    method.score(outputs)
    method.margin(method.image_terms(outputs, batch([0, 1, 2])), batch([0, 1, 2]))
    assert (method.state.mean.item(), method.state.std.item()) == (20.0, 100.0)
    for step in range(1, 4):
        loss = method.loss(outputs, batch([0, 1, 2]), centers)
        assert method.state.mean.item() == pytest.approx(40 - 20 * 0.99**step, rel=1e-6)
        assert method.state.std.item() == pytest.approx(100 * 0.99**step, rel=1e-5)
        assert loss.parts["norm_mean"] == method.state.mean
    assert list(method.state.parameters()) == []
    other = AdaFace(AdaFaceConfig())
    other.state.load_state_dict(method.state.state_dict())
    torch.testing.assert_close(
        other.loss(outputs, batch([0, 1, 2]), centers).total,
        method.loss(outputs, batch([0, 1, 2]), centers).total,
    )


@pytest.mark.parametrize("gradient", ["exact", "straight"])
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [1.0, -1.0, 30.0, -30.0, 300.0, 0.0])
def test_loss_and_gradients_are_finite_at_the_ends(gradient: str, half: torch.dtype, length: float) -> None:
    torch.manual_seed(5)
    centers = ClassCenters(5, 8)
    embedding = (length * F.normalize(centers.weight.detach())).to(half).float().requires_grad_()
    method = AdaFace(AdaFaceConfig(momentum=0.0, margin_gradient=gradient))
    for rows in (slice(0, 5), slice(0, 1)):
        outputs, labels = {"embedding": embedding[rows]}, list(range(5))[rows]
        loss = method.loss(outputs, batch(labels), centers)
        loss.total.backward()  # type: ignore[no-untyped-call]
        for value in (loss.total, embedding.grad, centers.weight.grad, method.state.mean, method.state.std):
            assert value is not None
            assert torch.isfinite(value).all()


def test_quality_is_the_unclipped_norm() -> None:
    scored = AdaFace(AdaFaceConfig()).score({"embedding": torch.tensor([[3.0, 4.0], [300.0, 400.0]])})
    torch.testing.assert_close(scored["quality"], torch.tensor([5.0, 500.0]))
    torch.testing.assert_close(scored["uncertainty"], torch.tensor([-5.0, -500.0]))


@pytest.mark.parametrize("settings", [{"concentration": 0}, {"momentum": 1}, {"margin": -0.1}, {"h": 0.3}])
def test_impossible_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        AdaFaceConfig(**settings)
