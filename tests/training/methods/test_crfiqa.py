from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.methods import Batch
from facerts.training.methods.arcface import ArcFace
from facerts.training.methods.base import MarginConfig
from facerts.training.methods.crfiqa import CRFIQA, CRFIQAConfig, certainty_ratio
from facerts.training.nn.heads import HeadSpec


def batch(labels: list[int], ramp: float = 1.0) -> Batch:
    return Batch(torch.tensor(labels), torch.arange(len(labels)), step=3, seed=7, ramp=ramp)


def slow_ratios(embedding: Tensor, labels: list[int], centers: ClassCenters) -> list[float]:
    ratios = []
    for row, label in zip(embedding.detach(), labels, strict=True):
        cosines = [float(torch.dot(row, w) / row.norm() / w.norm()) for w in centers.weight.detach()]
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
    arcface = ArcFace(MarginConfig())
    plain = arcface.loss({"embedding": embedding}, batch(labels, ramp), centers)
    outputs = {"embedding": embedding, "certainty_ratio": r.double()}
    loss = CRFIQA(CRFIQAConfig()).loss(outputs, batch(labels, ramp), centers)
    assert loss.total.item() == pytest.approx(plain.total.item() + 10 * regression, rel=1e-6)
    assert loss.parts["regression"].item() == pytest.approx(regression, rel=1e-6)
    torch.testing.assert_close(
        loss.per_image["certainty_ratio"], torch.tensor(ratios, dtype=torch.float64), rtol=1e-9, atol=1e-12
    )


def test_without_margin_and_regression_it_is_scaled_cosine_softmax() -> None:
    torch.manual_seed(1)
    centers, embedding = ClassCenters(9, 6).double(), torch.randn(4, 6, dtype=torch.float64)
    labels = [0, 8, 3, 3]
    method = CRFIQA(CRFIQAConfig(margin=0.0, regression_weight=0.0))
    outputs = {"embedding": embedding, "certainty_ratio": torch.zeros(4, 1, dtype=torch.float64)}
    logits = 64 * F.normalize(embedding) @ F.normalize(centers.weight).T
    torch.testing.assert_close(
        method.loss(outputs, batch(labels), centers).total, F.cross_entropy(logits, torch.tensor(labels))
    )


def test_no_gradient_flows_through_the_target() -> None:
    torch.manual_seed(2)
    centers = ClassCenters(7, 5).double()
    embedding = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    r = torch.zeros(3, 1, dtype=torch.float64, requires_grad=True)
    inputs = (embedding, centers.weight)
    outputs = {"embedding": embedding, "certainty_ratio": r}
    arcface = ArcFace(MarginConfig())
    plain = torch.autograd.grad(arcface.loss(outputs, batch([0, 1, 2]), centers).total, inputs)
    loss = CRFIQA(CRFIQAConfig()).loss(outputs, batch([0, 1, 2]), centers).total
    *actual, slope = torch.autograd.grad(loss, (*inputs, r))
    for one, other in zip(actual, plain, strict=True):
        torch.testing.assert_close(one, other)
    # SmoothL1's slope is e/β within β and its sign beyond; the mean divides by 3, λ is 10.
    error = -torch.tensor(slow_ratios(embedding, [0, 1, 2], centers), dtype=torch.float64)
    torch.testing.assert_close(slope.squeeze(1), 10 / 3 * (error / 0.5).clamp(-1, 1), rtol=1e-7, atol=1e-12)


def test_the_head_learns_the_ratio() -> None:
    torch.manual_seed(3)
    centers = ClassCenters(7, 5)
    embedding, labels = torch.randn(4, 5), [0, 1, 2, 3]
    r = torch.zeros(4, 1, requires_grad=True)
    optimizer = torch.optim.SGD([r], lr=0.1)
    for _ in range(100):
        outputs = {"embedding": embedding, "certainty_ratio": r}
        optimizer.zero_grad()
        CRFIQA(CRFIQAConfig()).loss(outputs, batch(labels), centers).total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    expected = torch.tensor(slow_ratios(embedding, labels, centers))
    torch.testing.assert_close(r.detach().squeeze(1), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("identities", [2, 5])
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("factor", [1.0, -1.0, 0.0])
def test_loss_and_gradients_are_finite_at_the_ends(identities: int, half: torch.dtype, factor: float) -> None:
    torch.manual_seed(4)
    centers = ClassCenters(identities, 8)
    if identities == 2:
        # Opposite centers: the nearest other cosine is −1, where the divisor of the ratio is minimal.
        centers.weight.data[1] = -centers.weight.data[0]
    embedding = (20 * factor * F.normalize(centers.weight.detach())).to(half).float().requires_grad_()
    r = torch.zeros(identities, 1, requires_grad=True)
    outputs = {"embedding": embedding, "certainty_ratio": r}
    loss = CRFIQA(CRFIQAConfig()).loss(outputs, batch(list(range(identities))), centers)
    loss.total.backward()  # type: ignore[no-untyped-call]
    for value in (loss.total, embedding.grad, r.grad, centers.weight.grad):
        assert value is not None
        assert torch.isfinite(value).all()


def test_quality_is_the_heads_output() -> None:
    method = CRFIQA(CRFIQAConfig())
    assert method.heads() == {"certainty_ratio": HeadSpec(1)}
    outputs = {
        "embedding": torch.tensor([[3.0, 4.0], [0.6, 0.8]]),
        "certainty_ratio": torch.tensor([[0.2], [0.9]]),
    }
    scored = method.score(outputs)
    assert scored["quality"].tolist() == pytest.approx([0.2, 0.9])
    assert scored["uncertainty"].tolist() == pytest.approx([-0.2, -0.9])
    torch.testing.assert_close(scored["norm"], torch.tensor([5.0, 1.0]))


@pytest.mark.parametrize("settings", [{"beta": 0}, {"regression_weight": -1}, {"weight": 10}])
def test_impossible_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        CRFIQAConfig(**settings)
