from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.training.checkpoint import save_checkpoint
from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.learner import Learner
from facerts.training.methods.base import Batch
from facerts.training.methods.contrastive import similarities
from facerts.training.methods.tau import TaU, TaUConfig, temperature
from facerts.training.nn.heads import HeadSpec
from facerts.training.posthoc.features import Features
from facerts.training.posthoc.train_heads import HeadSettings, train_heads
from facerts.training.recipe import Recipe
from tests.contrastive import permuted, slow_info_nce, slow_nt_xent, views_batch

MakeRecipe = Callable[..., Recipe]

IMAGES = 5


def example(
    size: int = 4, dtype: torch.dtype = torch.float64
) -> tuple[ClassCenters, dict[str, Tensor], Batch]:
    torch.manual_seed(12)
    embedding = torch.randn(2 * IMAGES, size, dtype=dtype)
    u = torch.randn(2 * IMAGES, 1, dtype=dtype)
    return ClassCenters(3, size).to(dtype), {"embedding": embedding, "log_odds": u}, views_batch([0] * IMAGES)


def build(smallest: float = 0.1) -> TaU:
    return TaU(TaUConfig(tau_min=smallest))


def test_two_shuffled_views_and_one_more_output() -> None:
    assert (TaU.views, TaU.sampler) == (2, "shuffle")
    assert build().heads() == {"log_odds": HeadSpec(1)}


@pytest.mark.parametrize("u", [-2.0, 0.0, 1.5])
def test_a_constant_u_gives_simclrs_loss_at_its_temperature(u: float) -> None:
    centers, outputs, batch = example()
    outputs["log_odds"] = torch.full_like(outputs["log_odds"], u)
    loss = build(0.2).loss(outputs, batch, centers).total.item()
    tau = 0.2 * (1 + math.exp(-u))
    assert loss == pytest.approx(slow_nt_xent(outputs["embedding"], tau), rel=1e-10)


def test_every_view_has_its_own_temperature() -> None:
    centers, outputs, batch = example()
    loss = build(0.3).loss(outputs, batch, centers)
    taus = [0.3 / (1 / (1 + math.exp(-float(u)))) for u in outputs["log_odds"]]
    positive = [[(i + IMAGES) % (2 * IMAGES)] for i in range(2 * IMAGES)]
    slow = slow_info_nce(outputs["embedding"], positive, taus)
    assert loss.total.item() == pytest.approx(sum(slow) / len(slow), rel=1e-10)
    torch.testing.assert_close(loss.per_image["temperature"], torch.tensor(taus, dtype=torch.float64))


def test_labels_have_no_effect() -> None:
    centers, outputs, batch = example()
    relabeled = Batch(torch.arange(2 * IMAGES) % 3, batch.samples, batch.step, batch.seed)
    before, after = (build().loss(outputs, b, centers).total for b in (batch, relabeled))
    assert torch.equal(before, after)


def test_the_order_of_the_batch_does_not_matter() -> None:
    centers, outputs, batch = example()
    order = torch.randperm(2 * IMAGES)
    shuffled = {name: value[order] for name, value in outputs.items()}
    torch.testing.assert_close(
        build().loss(outputs, batch, centers).total,
        build().loss(shuffled, permuted(batch, order), centers).total,
    )


def test_the_gradient_by_gradcheck_and_us_by_hand() -> None:
    centers, outputs, batch = example()

    def total(embedding: Tensor, u: Tensor) -> Tensor:
        return build(0.5).loss({"embedding": embedding, "log_odds": u}, batch, centers).total

    embedding, u = (outputs[name].requires_grad_() for name in ("embedding", "log_odds"))
    assert torch.autograd.gradcheck(total, (embedding, u))

    # ∂ℓ_i/∂u_i = σ'(u)/τ_min · (E_pool[s_ik] − s_ip)
    (slope,) = torch.autograd.grad(total(embedding, u), u)
    s = similarities(embedding.detach())
    sigmoid = torch.sigmoid(u.detach()).squeeze(1)
    for i in range(2 * IMAGES):
        others = [k for k in range(2 * IMAGES) if k != i]
        p = (s[i, others] * sigmoid[i] / 0.5).softmax(dim=0)
        surplus = (p * s[i, others]).sum() - s[i, (i + IMAGES) % (2 * IMAGES)]
        expected = sigmoid[i] * (1 - sigmoid[i]) / 0.5 * surplus / (2 * IMAGES)
        torch.testing.assert_close(slope[i, 0], expected)


def test_the_temperature_is_bounded_from_below_and_always_finite() -> None:
    u = torch.tensor([-1e4, -89.0, 0.0, 3.0, 200.0])
    tau = temperature(u, 0.1)
    assert torch.isfinite(tau).all()
    assert (tau.diff() <= 0).all()
    assert tau[2].item() == pytest.approx(0.2)
    assert tau[3].item() == pytest.approx(0.1 / (1 / (1 + math.exp(-3))))
    assert tau[4].item() == pytest.approx(0.1)
    assert (tau >= 0.1).all()


def test_quality_is_u_where_the_sigmoid_saturates() -> None:
    u = torch.tensor([[-3.0], [0.0], [20.0], [21.0]])
    embedding = torch.randn(4, 6)
    scored = build().score({"embedding": embedding, "log_odds": u})
    torch.testing.assert_close(scored["quality"], u.squeeze(1))
    assert torch.sigmoid(u[2]) == torch.sigmoid(u[3])
    assert scored["quality"][3] > scored["quality"][2]
    torch.testing.assert_close(scored["uncertainty"], 0.1 / torch.sigmoid(u.squeeze(1)))
    torch.testing.assert_close(scored["embedding"], F.normalize(embedding))
    torch.testing.assert_close(scored["norm"], embedding.norm(dim=1))


@pytest.mark.parametrize("where", ["drawn", "own center", "opposite", "zero", "same views", "one row"])
@pytest.mark.parametrize("u", [-1e4, 0.0, 1e4])
@pytest.mark.parametrize("rounding", [torch.float32, torch.bfloat16, torch.float16])
def test_loss_and_gradient_are_finite(where: str, u: float, rounding: torch.dtype) -> None:
    centers, outputs, batch = example(dtype=torch.float32)
    embedding = outputs["embedding"]
    if where in {"own center", "opposite", "zero"}:
        own = F.normalize(centers.weight.detach())[batch.labels]
        embedding = own * {"own center": 1.0, "opposite": -1.0, "zero": 0.0}[where]
    elif where == "same views":
        embedding[IMAGES:] = embedding[:IMAGES]
    elif where == "one row":
        embedding, batch = embedding[:1], views_batch([0], views=1)
    embedding = (60 * embedding).to(rounding).float().requires_grad_()
    log_odds = torch.full((len(embedding), 1), u, requires_grad=True)
    loss = build().loss({"embedding": embedding, "log_odds": log_odds}, batch, centers)
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert torch.isfinite(loss.per_image["temperature"]).all()
    assert torch.isfinite(embedding.grad).all()  # type: ignore[arg-type]
    assert torch.isfinite(log_odds.grad).all()  # type: ignore[arg-type]


def test_an_image_whose_other_view_is_lost_learns_a_higher_temperature() -> None:
    centers, outputs, batch = example(size=12, dtype=torch.float32)
    embedding = outputs["embedding"]
    embedding[IMAGES:] = embedding[:IMAGES] + 0.1 * torch.randn(IMAGES, 12)
    embedding[IMAGES] = -embedding[0]
    u = torch.zeros(2 * IMAGES, 1, requires_grad=True)
    optimizer = torch.optim.SGD([u], lr=1.0)
    for _ in range(100):
        loss = build().loss({"embedding": embedding, "log_odds": u}, batch, centers).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    lost = [0, IMAGES]
    found = [i for i in range(2 * IMAGES) if i not in lost]
    quality = build().score({"embedding": embedding, "log_odds": u.detach()})["quality"]
    assert quality[lost].max() < 0 < quality[found].min()


def test_on_a_frozen_network_only_the_head_is_trained(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    first = make_recipe("method={name: arcface}")
    save_checkpoint(tmp_path / "first.pt", first, {"step": 1, **Learner(first, 4).state_dict()})
    learner = Learner(
        make_recipe(
            "method={name: tau}", f"backbone.weights={tmp_path / 'first.pt'}", "backbone.frozen=true"
        ),
        4,
    )
    before = copy.deepcopy({"centers": learner.centers.weight.detach(), **learner.network.state_dict()})
    batch = views_batch([0, 1, 2, 3])
    learner.step(torch.randint(0, 256, (8, 112, 112, 3), dtype=torch.uint8), batch, 0.1)
    after = {"centers": learner.centers.weight.detach(), **learner.network.state_dict()}
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert changed == {"heads.log_odds.0.weight", "heads.log_odds.0.bias"}


def test_post_hoc_only_u_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(4)
    labels, unit = np.arange(24) // 4, F.normalize(torch.randn(48, 6)).numpy()
    features = Features(unit, np.ones(48, np.float32), np.empty((48, 0), np.float32))
    given, groups = unit.copy(), []

    def adamw(parameters: list[dict[str, list[Tensor]]], **options: float) -> torch.optim.Optimizer:
        groups.extend(parameters)
        return torch.optim.SGD(parameters, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.optim, "AdamW", adamw)
    trained = train_heads(
        build(), features, labels, HeadSettings(epochs=2, batch_size=12, lr=0.1, device="cpu")
    )
    assert set(trained.heads.heads) == {"log_odds"}
    ids = {id(parameter) for parameter in trained.heads.heads["log_odds"].parameters()}
    assert {id(parameter) for group in groups for parameter in group["params"]} == ids
    np.testing.assert_array_equal(features.unit, given)


@pytest.mark.parametrize("settings", [{"tau_min": 0}, {"temperature": 0.1}])
def test_impossible_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        TaUConfig(**settings)
