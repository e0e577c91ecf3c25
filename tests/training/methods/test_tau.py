from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.methods.contrastive import similarities
from facerts.training.methods.method import Batch
from facerts.training.methods.tau import TaU, TaUConfig, temperature
from facerts.training.nn.twin_heads import HeadSpec
from facerts.training.posthoc.features import Features
from facerts.training.posthoc.train_heads import HeadSettings, train_heads
from tests.losses import batch_of, permuted, slow_info_nce, slow_nt_xent

IMAGES = 5
CENTERS = ClassCenters(3, 4)  # which the loss does not use


def example(size: int = 4, dtype: torch.dtype = torch.float64) -> tuple[dict[str, Tensor], Batch]:
    torch.manual_seed(12)
    embedding = torch.randn(2 * IMAGES, size, dtype=dtype)
    u = torch.randn(2 * IMAGES, 1, dtype=dtype)
    return {"embedding": embedding, "log_odds": u}, batch_of([0] * IMAGES, 2)


def build(tau_min: float = 0.1) -> TaU:
    return TaU(TaUConfig(tau_min=tau_min))


@pytest.mark.parametrize("u", [-2.0, 0.0, 1.5])
def test_a_constant_u_gives_simclrs_loss_at_its_temperature(u: float) -> None:
    outputs, batch = example()
    outputs["log_odds"] = torch.full_like(outputs["log_odds"], u)
    loss = build(0.2).loss(outputs, batch, CENTERS).total.item()
    tau = 0.2 * (1 + math.exp(-u))
    assert loss == pytest.approx(slow_nt_xent(outputs["embedding"], tau), rel=1e-10)


def test_every_view_has_its_own_temperature() -> None:
    outputs, batch = example()
    loss = build(0.3).loss(outputs, batch, CENTERS)
    taus = [0.3 / (1 / (1 + math.exp(-float(u)))) for u in outputs["log_odds"]]
    positive = [[(i + IMAGES) % (2 * IMAGES)] for i in range(2 * IMAGES)]
    slow = slow_info_nce(outputs["embedding"], positive, taus)
    assert loss.total.item() == pytest.approx(sum(slow) / len(slow), rel=1e-10)
    torch.testing.assert_close(loss.per_image["temperature"], torch.tensor(taus, dtype=torch.float64))


def test_neither_labels_nor_the_order_of_the_batch_have_an_effect() -> None:
    outputs, batch = example()
    loss = build().loss(outputs, batch, CENTERS).total
    relabeled = Batch(torch.arange(2 * IMAGES) % 3, batch.samples, batch.step, batch.seed)
    assert torch.equal(loss, build().loss(outputs, relabeled, CENTERS).total)
    order = torch.randperm(2 * IMAGES)
    shuffled = {name: value[order] for name, value in outputs.items()}
    torch.testing.assert_close(loss, build().loss(shuffled, permuted(batch, order), CENTERS).total)


def test_the_gradient_of_u_by_hand() -> None:
    outputs, batch = example()
    u = outputs["log_odds"].requires_grad_()
    (slope,) = torch.autograd.grad(build(0.5).loss(outputs, batch, CENTERS).total, u)
    # ∂ℓ_i/∂u_i = σ'(u)/τ_min · (E_pool[s_ik] − s_ip)
    s = similarities(outputs["embedding"])
    sigmoid = torch.sigmoid(u.detach()).squeeze(1)
    for i in range(2 * IMAGES):
        others = [k for k in range(2 * IMAGES) if k != i]
        p = (s[i, others] * sigmoid[i] / 0.5).softmax(dim=0)
        surplus = (p * s[i, others]).sum() - s[i, (i + IMAGES) % (2 * IMAGES)]
        expected = sigmoid[i] * (1 - sigmoid[i]) / 0.5 * surplus / (2 * IMAGES)
        torch.testing.assert_close(slope[i, 0], expected)


def test_the_temperature_is_bounded_from_below_and_always_finite() -> None:
    tau = temperature(torch.tensor([-1e4, -89.0, 0.0, 3.0, 200.0]), 0.1)
    assert torch.isfinite(tau).all()
    assert (tau.diff() <= 0).all()
    assert tau[2:].tolist() == pytest.approx([0.2, 0.1 * (1 + math.exp(-3)), 0.1])


def test_quality_is_u_where_the_sigmoid_saturates() -> None:
    assert (TaU.views, TaU.sampler) == (2, "shuffle")
    assert build().heads() == {"log_odds": HeadSpec(1)}
    u = torch.tensor([[-3.0], [0.0], [20.0], [21.0]])
    scored = build().score({"embedding": torch.randn(4, 6), "log_odds": u})
    assert torch.equal(scored["quality"], u.squeeze(1))
    assert torch.sigmoid(u[2]) == torch.sigmoid(u[3])
    torch.testing.assert_close(scored["uncertainty"], 0.1 / torch.sigmoid(u.squeeze(1)))


@pytest.mark.parametrize("case", ["drawn", "same views", "one row"])
def test_loss_and_gradient_are_finite_for_odd_batches(case: str) -> None:
    for u in (-1e4, 0.0, 1e4):
        outputs, batch = example(dtype=torch.float32)
        embedding = outputs["embedding"]
        if case == "same views":
            embedding[IMAGES:] = embedding[:IMAGES]
        elif case == "one row":
            embedding, batch = embedding[:1], batch_of([0])
        embedding = (60 * embedding).half().float().requires_grad_()
        log_odds = torch.full((len(embedding), 1), u, requires_grad=True)
        loss = build().loss({"embedding": embedding, "log_odds": log_odds}, batch, CENTERS)
        loss.total.backward()
        for value in (loss.total, loss.per_image["temperature"], embedding.grad, log_odds.grad):
            assert value is not None
            assert value.isfinite().all()


def test_an_image_whose_other_view_is_lost_learns_a_higher_temperature() -> None:
    outputs, batch = example(size=12, dtype=torch.float32)
    embedding = outputs["embedding"]
    embedding[IMAGES:] = embedding[:IMAGES] + 0.1 * torch.randn(IMAGES, 12)
    embedding[IMAGES] = -embedding[0]
    u = torch.zeros(2 * IMAGES, 1, requires_grad=True)
    optimizer = torch.optim.SGD([u], lr=1.0)
    for _ in range(50):
        loss = build().loss({"embedding": embedding, "log_odds": u}, batch, CENTERS).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    lost = torch.arange(2 * IMAGES) % IMAGES == 0
    quality = build().score({"embedding": embedding, "log_odds": u.detach()})["quality"]
    assert quality[lost].max() < 0 < quality[~lost].min()


def test_post_hoc_only_u_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(4)
    labels, unit = np.arange(24) // 4, F.normalize(torch.randn(48, 6)).numpy()
    features = Features(unit, np.ones(48, np.float32), np.empty((48, 0), np.float32))
    given, groups = unit.copy(), []

    def adamw(parameters: list[dict[str, list[Tensor]]], **options: float) -> torch.optim.Optimizer:
        groups.extend(parameters)
        return torch.optim.SGD(parameters, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.optim, "AdamW", adamw)
    settings = HeadSettings(epochs=2, batch_size=12, lr=0.1, device="cpu")
    trained = train_heads(build(), features, labels, settings)
    ids = {id(parameter) for parameter in trained.heads.heads["log_odds"].parameters()}
    assert {id(parameter) for group in groups for parameter in group["params"]} == ids
    np.testing.assert_array_equal(features.unit, given)
