from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn import functional as F

from facerts.errors import Error
from facerts.training.checkpoint import load_checkpoint
from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.loop import train
from facerts.training.methods import Batch
from facerts.training.methods.robust_loss import (
    excess,
    first_derivative,
    fixed_point,
    newton_temperature,
    robust_loss,
    second_derivative,
)
from facerts.training.methods.tempnet import (
    TemperatureNetwork,
    TempNet,
    TempNetConfig,
    batch_contrast,
)
from facerts.training.recipe import Recipe

MakeRecipe = Callable[..., Recipe]

FLOOR = 1e-3


def cosines(rows: int, columns: int, seed: int = 0, size: int = 24) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(n, size, generator=generator, dtype=torch.float64) for n in (rows, columns))
    return F.normalize(a) @ F.normalize(b).T


def batch(labels: list[int]) -> Batch:
    return Batch(torch.tensor(labels), torch.arange(len(labels)), step=3, seed=7)


def method(**settings: object) -> TempNet:
    torch.manual_seed(0)
    return TempNet(TempNetConfig(**{"hidden": 16, "references": 12, **settings}), 8)  # type: ignore[arg-type]


# The loss and its derivatives


def test_the_loss_by_a_slow_loop() -> None:
    logits, positive = cosines(3, 5), torch.tensor([0.4, -0.2, 0.9], dtype=torch.float64)
    tau, rho = torch.tensor([0.05, 0.5, 2.0], dtype=torch.float64), 0.7
    among = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 0, 1, 0]], dtype=torch.bool)
    expected = []
    for row in range(3):
        terms = [
            math.exp((logits[row, k].item() - positive[row].item()) / tau[row].item())
            for k in range(5)
            if among[row, k]
        ]
        expected.append(tau[row].item() * (math.log(sum(terms) / len(terms)) + rho))
    np.testing.assert_allclose(robust_loss(logits, positive, tau, rho, among), expected, rtol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_derivatives_are_those_of_autograd(masked: bool) -> None:
    logits, positive = cosines(40, 9), cosines(40, 1, seed=1).squeeze(1)
    among = torch.rand(40, 9, generator=torch.Generator().manual_seed(2)) < 0.6
    among[:, 0] = True
    mask = among if masked else None
    tau = torch.logspace(-2.5, 1, 40, dtype=torch.float64).requires_grad_()
    value = robust_loss(logits, positive, tau, 0.8, mask)
    (first,) = torch.autograd.grad(value.sum(), tau, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), tau)
    torch.testing.assert_close(first_derivative(logits, tau, 0.8, mask), first, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(second_derivative(logits, tau, mask), second, rtol=1e-6, atol=1e-9)


def test_masked_logits_have_no_effect() -> None:
    logits, tau = cosines(6, 9), torch.linspace(0.05, 1.0, 6, dtype=torch.float64)
    among = torch.zeros(6, 9, dtype=torch.bool)
    among[:, 2:7] = True
    changed = torch.where(among, logits, 50.0)
    positive = torch.zeros(6, dtype=torch.float64)
    torch.testing.assert_close(
        robust_loss(changed, positive, tau, 0.5, among), robust_loss(logits[:, 2:7], positive, tau, 0.5)
    )
    for function in (first_derivative, fixed_point):
        torch.testing.assert_close(function(changed, tau, 0.5, among), function(logits[:, 2:7], tau, 0.5))
    torch.testing.assert_close(
        newton_temperature(changed, 0.5, FLOOR, among), newton_temperature(logits[:, 2:7], 0.5, FLOOR)
    )


def test_the_gradient_is_that_of_the_formula() -> None:
    logits = cosines(4, 6).requires_grad_()
    positive = cosines(4, 1, seed=1).squeeze(1).requires_grad_()
    tau = torch.tensor([0.05, 0.2, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    among = torch.ones(4, 6, dtype=torch.bool)
    among[:, 4] = False
    assert torch.autograd.gradcheck(
        lambda *inputs: robust_loss(inputs[0], inputs[1], inputs[2], 0.5, among), (logits, positive, tau)
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 64.0])
def test_the_loss_is_convex_in_the_temperature(scale: float) -> None:
    tau = torch.logspace(-3, 2, 200, dtype=torch.float64)
    logits = scale * cosines(1, 30).expand(200, -1)
    assert (second_derivative(logits, tau) >= 0).all()
    # f' never decreases; checking f'' alone would not show it.
    assert (first_derivative(logits, tau, 1.0).diff() >= -1e-9).all()


def test_the_derivative_runs_from_the_largest_divergence_to_rho() -> None:
    logits = torch.tensor([[0.5, 0.5, 0.1, -0.3, 0.2, 0.0]], dtype=torch.float64)
    small, large = (torch.tensor([tau], dtype=torch.float64) for tau in (1e-3, 1e4))
    assert first_derivative(logits, small, 0.3).item() == pytest.approx(0.3 - math.log(6 / 2), abs=1e-12)
    assert first_derivative(logits, large, 0.3).item() == pytest.approx(0.3, abs=1e-8)


def test_a_temperature_of_one_is_cross_entropy() -> None:
    logits, labels = 5 * cosines(8, 11), torch.arange(8)
    actual = robust_loss(logits, logits[labels, labels], torch.ones(8, dtype=torch.float64), 0.0)
    torch.testing.assert_close(actual, F.cross_entropy(logits, labels, reduction="none") - math.log(11))


def test_the_excess_keeps_its_bounds() -> None:
    logits = cosines(500, 20)
    tau = torch.logspace(-3, 2, 500, dtype=torch.float64)
    actual = excess(logits, tau)
    assert (actual >= -1e-12).all()
    assert (actual <= logits.amax(dim=1) - logits.mean(dim=1) + 1e-12).all()
    assert actual[0] > 0.9 * (logits[0].max() - logits[0].mean())
    assert actual[-1] < 1e-2 * (logits[-1].max() - logits[-1].mean())


# Newton's temperature


def hostile() -> dict[str, Tensor]:
    torch.manual_seed(3)
    dominating = 0.01 * torch.randn(20, 50, dtype=torch.float64)
    dominating[:, 0] = 1.0
    outlier = torch.randn(20, 50, dtype=torch.float64)
    outlier[:, 0] = 1e4
    return {
        "cosines": cosines(20, 50),
        "cosines of one sign": 0.999 + 1e-3 * cosines(20, 50),
        "scaled": 64 * cosines(20, 50),
        "huge": 1e8 * cosines(20, 50),
        "far from zero": 1e6 + cosines(20, 50),
        "all but equal": 1e-6 * cosines(20, 50),
        "one dominating": dominating,
        "an outlier": outlier,
        "two values": (torch.rand(20, 50) < 0.2).double(),
        "float32": cosines(20, 50).float(),
    }


@pytest.mark.parametrize("kind", hostile())
@pytest.mark.parametrize("rho", [1e-3, 0.3, 1.0, 2.0, 3.0, 3.8])
def test_newton_finds_the_minimum(kind: str, rho: float) -> None:
    logits = hostile()[kind]
    tau = newton_temperature(logits, rho, FLOOR)
    assert tau.dtype == torch.float64
    assert torch.isfinite(tau).all()
    assert (tau >= FLOOR).all()
    shifted = logits.double() - logits.double().amax(dim=1, keepdim=True)
    for row, actual in zip(shifted[:5], tau[:5].tolist(), strict=True):

        def value(log_tau: float, row: Tensor = row) -> float:
            at = torch.tensor([math.exp(log_tau)], dtype=torch.float64)
            return float(robust_loss(row[None], row.new_zeros(1), at, rho))

        # An independent search over all decades in which the minimum can be.
        found = minimize_scalar(
            value, bounds=(math.log(FLOOR), math.log(1e14)), method="bounded", options={"xatol": 1e-8}
        )
        least = min(found.fun, value(math.log(FLOOR)))
        assert value(math.log(actual)) <= least + 1e-9 * max(abs(least), 1e-6)
    slope = first_derivative(shifted, tau, rho)
    inside = tau > FLOOR
    assert (slope[~inside] >= 0).all()
    assert (slope[inside].abs() < 1e-7).all()


def test_an_interior_minimum_is_a_fixed_point() -> None:
    logits = cosines(50, 40)
    for rho in (0.2, 1.0, 2.5):
        tau = newton_temperature(logits, rho, 1e-6)
        assert (tau > 1e-6).all()
        torch.testing.assert_close(fixed_point(logits, tau, rho), tau, rtol=1e-8, atol=0)
        assert not torch.allclose(fixed_point(logits, 2 * tau, rho), 2 * tau, rtol=1e-3)


@pytest.mark.parametrize("maxima", [1, 2, 5])
def test_too_large_a_rho_puts_the_minimum_at_the_floor(maxima: int) -> None:
    logits = torch.linspace(-0.9, 0.2, 40, dtype=torch.float64).repeat(3, 1)
    logits[:, :maxima] = 0.5
    edge = math.log(40 / maxima)
    assert (newton_temperature(logits, edge + 1e-12, FLOOR) == FLOOR).all()
    assert (newton_temperature(logits, edge + 2, FLOOR) == FLOOR).all()
    assert (newton_temperature(logits, edge - 0.2, FLOOR) > FLOOR).all()


@pytest.mark.parametrize("rho", [0.01, 1.0, 9.0])
def test_equal_logits_have_their_minimum_at_the_floor(rho: float) -> None:
    for value in (0.0, -0.3, 1e6):
        logits = torch.full((2, 7), value, dtype=torch.float64)
        assert (newton_temperature(logits, rho, FLOOR) == FLOOR).all()
    assert (newton_temperature(torch.randn(4, 1), rho, FLOOR) == FLOOR).all()


def test_half_of_two_logits_worked_out_by_hand() -> None:
    # With two logits a apart, KL(p ‖ uniform) = log 2 − H(p), and p = sigmoid(a/τ).
    p = 0.9
    rho = math.log(2) + p * math.log(p) + (1 - p) * math.log(1 - p)
    tau = newton_temperature(torch.tensor([[0.3, -0.1]], dtype=torch.float64), rho, FLOOR)
    assert tau.item() == pytest.approx(0.4 / math.log(p / (1 - p)), rel=1e-10)


def test_without_rho_there_is_no_temperature() -> None:
    for rho, floor in ((0.0, FLOOR), (-1.0, FLOOR), (1.0, 0.0)):
        with pytest.raises(ValueError, match="above 0"):
            newton_temperature(cosines(2, 3), rho, floor)


def test_no_network_beats_newton() -> None:
    torch.manual_seed(5)
    embedding = F.normalize(torch.randn(60, 8, dtype=torch.float64))
    logits, positive, among = batch_contrast(embedding, torch.arange(30).repeat(2))
    best = robust_loss(logits, positive, newton_temperature(logits, 2.0, FLOOR, among), 2.0, among)
    for seed in range(5):
        torch.manual_seed(seed)
        network = TemperatureNetwork(8, TempNetConfig(rho=2.0, tau_max=10.0 ** (seed - 2))).double()
        with torch.no_grad():
            predicted = robust_loss(logits, positive, network(embedding), 2.0, among)
        assert (best <= predicted + 1e-12).all()
        assert best.mean() < predicted.mean()


# The network


def test_the_network_by_a_slow_reading_of_its_equations() -> None:
    torch.manual_seed(1)
    config = TempNetConfig(hidden=6, references=5, rho=1.5, tau_min=0.01, tau_max=0.3)
    network = TemperatureNetwork(4, config).double()
    with torch.no_grad():
        network.weight.normal_()
        network.bias.fill_(0.2)
        network.log_sharpness.fill_(math.log(0.3))
        network.features.bias.normal_()
    embedding = F.normalize(torch.randn(3, 4, dtype=torch.float64))
    actual = network(embedding)
    w1, b1 = network.features.weight.detach().numpy(), network.features.bias.detach().numpy()
    w2, w3 = network.references.detach().numpy(), network.weight.detach().numpy()
    for row, tau in zip(embedding.numpy(), actual.tolist(), strict=True):
        v = np.maximum(w1 @ row + b1, 0)
        u = [w2[:, k] @ v / np.sqrt((w2[:, k] ** 2).sum()) for k in range(5)]
        p = np.exp(np.array(u) / 0.3) / np.exp(np.array(u) / 0.3).sum()
        s = (sum((p[k] - 1 / 5) * w3[k] * u[k] for k in range(5)) - 0.2) / 1.5
        assert tau == pytest.approx(0.01 + 0.29 / (1 + math.exp(-s)), rel=1e-12)


def test_the_network_starts_as_the_paper_says() -> None:
    network = TemperatureNetwork(32, TempNetConfig())
    assert network.references.shape == (256, 256)
    assert network.log_sharpness.exp().item() == pytest.approx(0.01)
    assert (network.weight == 1).all()
    assert network.bias == 0
    assert (network.references >= 0).all()
    tau = network(F.normalize(torch.randn(100, 32)))
    assert 0.02 < tau.min() < tau.max() < 0.04
    assert tau.std() > 0


def test_temperatures_keep_their_range_whatever_is_learned() -> None:
    network = TemperatureNetwork(8, TempNetConfig(hidden=16, references=12))
    embedding = F.normalize(torch.randn(9, 8))
    for bias in (-1e4, 1e4):
        for sharpness in (-200.0, 50.0):
            with torch.no_grad():
                network.bias.fill_(bias)
                network.log_sharpness.fill_(sharpness)
            tau = network(embedding)
            assert torch.isfinite(tau).all()
            assert 0.001 - 1e-9 <= tau.min() <= tau.max() <= 0.05 + 1e-9


def test_a_linear_last_layer_by_a_slow_reading() -> None:
    torch.manual_seed(1)
    config = TempNetConfig(hidden=6, references=5, rho=1.5, tau_min=0.01, tau_max=0.3, last_layer="linear")
    network = TemperatureNetwork(4, config).double()
    assert "log_sharpness" not in network.state_dict()
    assert 0 < network.weight.abs().max() <= 1 / math.sqrt(5)
    with torch.no_grad():
        network.bias.fill_(0.2)
    embedding = F.normalize(torch.randn(3, 4, dtype=torch.float64))
    w1, w2, w3 = (
        value.detach().numpy() for value in (network.features.weight, network.references, network.weight)
    )
    for row, tau in zip(embedding.numpy(), network(embedding).tolist(), strict=True):
        v = np.maximum(w1 @ row, 0)
        s = sum(w3[k] * (w2[:, k] @ v) / np.sqrt((w2[:, k] ** 2).sum()) for k in range(5)) - 0.2
        assert tau == pytest.approx(0.01 + 0.29 / (1 + math.exp(-s)), rel=1e-12)


def test_parameters_keep_their_order_by_which_checkpoints_know_them() -> None:
    network = TemperatureNetwork(4, TempNetConfig())
    names = ["references", "log_sharpness", "weight", "bias", "features.weight", "features.bias"]
    assert [name for name, _ in network.named_parameters()] == names


# The method


def test_contrast_in_the_batch_is_with_other_people() -> None:
    torch.manual_seed(2)
    embedding = F.normalize(torch.randn(6, 8, dtype=torch.float64))
    labels = torch.tensor([4, 9, 4, 4, 9, 4])
    logits, positive, among = batch_contrast(embedding, labels)
    for i in range(6):
        assert positive[i].item() == pytest.approx(float(embedding[i] @ embedding[(i + 3) % 6]))
        for k in range(6):
            assert among[i, k] == (labels[i] != labels[k])
            assert logits[i, k].item() == pytest.approx(float(embedding[i] @ embedding[k]))


@pytest.mark.parametrize("contrast", ["batch", "centers"])
def test_the_loss_of_a_step_by_a_slow_loop(contrast: str) -> None:
    torch.manual_seed(3)
    tempnet = method(contrast=contrast, rho=0.5, loss_scale=3.0)
    tempnet.state.double()
    centers, embedding = ClassCenters(5, 8).double(), torch.randn(6, 8, dtype=torch.float64)
    labels = [0, 1, 4, 0, 1, 4]
    loss = tempnet.loss({"embedding": embedding}, batch(labels), centers)
    unit = F.normalize(embedding)
    tau = tempnet.state(unit).tolist()
    values = []
    for i in range(6):
        if contrast == "batch":
            among = [float(unit[i] @ unit[k]) for k in range(6) if labels[k] != labels[i]]
            positive = float(unit[i] @ unit[(i + 3) % 6])
        else:
            among = [float(unit[i] @ F.normalize(w, dim=0)) for w in centers.weight.detach()]
            positive = among[labels[i]]
        mean = sum(math.exp((logit - positive) / tau[i]) for logit in among) / len(among)
        values.append(tau[i] * (math.log(mean) + 0.5))
    assert loss.total.item() == pytest.approx(3.0 * sum(values) / 6, rel=1e-9)
    assert loss.parts["robust"].item() == pytest.approx(sum(values) / 6, rel=1e-9)
    np.testing.assert_allclose(loss.per_image["tau"], tau)


def test_no_gradient_reaches_the_embedding_through_the_temperature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embedding = torch.randn(6, 8, requires_grad=True)
    tempnet, centers = method(rho=0.5), ClassCenters(5, 8)
    loss = tempnet.loss({"embedding": embedding}, batch([0, 1, 2, 0, 1, 2]), centers)
    (through,) = torch.autograd.grad(loss.total, embedding)
    tau = loss.per_image["tau"]
    monkeypatch.setattr(tempnet, "state", lambda _: tau)
    loss = tempnet.loss({"embedding": embedding}, batch([0, 1, 2, 0, 1, 2]), centers)
    (alone,) = torch.autograd.grad(loss.total, embedding)
    assert alone.abs().max() > 0
    torch.testing.assert_close(through, alone, rtol=0, atol=0)


@pytest.mark.parametrize("contrast", ["batch", "centers"])
def test_without_stop_gradient_the_temperatures_train_the_embedding_too(contrast: str) -> None:
    centers, labels = ClassCenters(5, 8).double(), torch.tensor([0, 1, 2, 0, 1, 2])
    embedding = torch.randn(6, 8, dtype=torch.float64, requires_grad=True)
    tempnet = method(contrast=contrast, rho=0.5, loss_scale=2.0, stop_gradient=False)
    tempnet.state.double()
    loss = tempnet.loss({"embedding": embedding}, batch(labels.tolist()), centers).total
    (actual,) = torch.autograd.grad(loss, embedding)
    unit = F.normalize(embedding)
    tau, total = tempnet.state(unit), torch.zeros((), dtype=torch.float64)
    for i in range(6):
        others = unit[labels != labels[i]] if contrast == "batch" else F.normalize(centers.weight)
        positive = unit[i] @ (unit[(i + 3) % 6] if contrast == "batch" else others[labels[i]])
        total = total + tau[i] * (((others @ unit[i] - positive) / tau[i]).exp().mean().log() + 0.5)
    (expected,) = torch.autograd.grad(2.0 * total / 6, embedding)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("contrast", ["batch", "centers"])
@pytest.mark.parametrize("where", ["own center", "opposite", "zero", "bf16", "fp16"])
def test_loss_and_gradient_are_finite_at_the_ends(contrast: str, where: str) -> None:
    torch.manual_seed(4)
    centers, tempnet = ClassCenters(5, 8), method(contrast=contrast, rho=0.5)
    center = F.normalize(centers.weight.detach()[:3]).repeat(2, 1)
    embedding: Callable[[], Tensor] = {
        "own center": lambda: center,
        "opposite": lambda: torch.cat([center[:3], -center[3:]]),
        "zero": lambda: torch.zeros_like(center),
        "bf16": lambda: torch.randn(6, 8).bfloat16().float(),
        "fp16": lambda: (1e3 * torch.randn(6, 8)).half().float(),
    }[where]
    rows = embedding().clone().requires_grad_()
    loss = tempnet.loss({"embedding": rows}, batch([0, 1, 2, 0, 1, 2]), centers)
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert torch.isfinite(rows.grad).all()  # type: ignore[arg-type]
    for parameter in tempnet.state.parameters():
        assert torch.isfinite(parameter.grad).all()  # type: ignore[arg-type]


def test_images_without_contrasts_are_left_out() -> None:
    tempnet, centers = method(rho=0.5), ClassCenters(5, 8)
    embedding = torch.randn(6, 8, requires_grad=True)
    loss = tempnet.loss({"embedding": embedding}, batch([3] * 6), centers)
    loss.total.backward()
    assert loss.total == 0
    assert (embedding.grad == 0).all()  # type: ignore[union-attr]


@pytest.mark.parametrize(("contrast", "hint"), [("batch", "optim.batch_size"), ("centers", "identities")])
def test_too_large_a_rho_is_refused(contrast: str, hint: str) -> None:
    outputs, centers = {"embedding": torch.randn(6, 8)}, ClassCenters(4, 8)
    labels = batch([0, 1, 2, 0, 1, 2])
    # Six views: four are of other people; and there are four centers.
    assert torch.isfinite(method(contrast=contrast, rho=1.38).loss(outputs, labels, centers).total)
    with pytest.raises(Error, match=rf"method\.rho 1\.39 .* log\(4\).*{hint}"):
        method(contrast=contrast, rho=1.39).loss(outputs, labels, centers)


def test_the_temperature_network_has_groups_of_its_own() -> None:
    tempnet, network, centers = method(temperature_lr=0.2), torch.nn.Linear(3, 3), ClassCenters(4, 8)
    network.bias.requires_grad_(False)
    main, matrices, rest = tempnet.parameter_groups(network, centers)
    assert {id(p) for p in main["params"]} == {id(network.weight), id(centers.weight)}
    assert set(main) == {"params"}
    assert {id(p) for p in matrices["params"]} == {
        id(tempnet.state.features.weight),
        id(tempnet.state.references),
    }
    assert len(matrices["params"]) + len(rest["params"]) == len(list(tempnet.state.parameters()))
    assert (matrices["lr_scale"], matrices["weight_decay"]) == (0.2, 0.02)
    assert (rest["lr_scale"], rest["weight_decay"]) == (0.2, 0.0)


@pytest.mark.slow
def test_a_run_with_the_papers_optimizer(
    make_recipe: MakeRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    optim = "{epochs: 2, batch_size: 16, algorithm: adamw, lr: 0.0002, weight_decay: 0.02, schedule: cosine, "
    settings = "{name: tempnet, rho: 8, temperature_lr: 0.25, denominator_rate: 0.8}"
    recipe = make_recipe(f"method={settings}", f"optim={optim} warmup_epochs: 0.5, milestones: []}}")
    train(recipe, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    # Eight steps, of which two are the warm-up and every second is logged.
    rates = [2e-4 * (1 + math.cos(math.pi * step / 6)) / 2 for step in (0, 1, 3, 5)]
    assert [line["lr"] for line in lines] == pytest.approx(rates)
    _, state = load_checkpoint(tmp_path / "run" / "checkpoint.pt")
    groups = state["optimizer"]["param_groups"]
    assert [group["lr"] for group in groups] == pytest.approx([rates[-1], rates[-1] / 4, rates[-1] / 4])
    assert [group["weight_decay"] for group in groups] == [0.02, 0.02, 0.0]
    assert all(group["betas"] == (0.9, 0.999) for group in groups)
    assert state["per_sample"]["log_denominator"].isfinite().all()
    assert lines[-1]["tau_p5"] <= lines[-1]["tau_mean"] <= lines[-1]["tau_p95"]
    assert f", tau {lines[-1]['tau_mean']:.4f}\n" in capsys.readouterr().err


def test_training_brings_the_network_to_newtons_temperatures() -> None:
    # Images in a dense cluster and isolated ones have different optimal temperatures, which the network must learn.
    torch.manual_seed(6)
    crowd = F.normalize(torch.tensor([3.0, 0, 0, 0, 0, 0, 0, 0]) + 0.5 * torch.randn(40, 8))
    embedding = torch.cat([crowd, F.normalize(torch.randn(40, 8))])
    labels = torch.arange(80)
    logits, positive, among = batch_contrast(embedding, labels)
    network = TemperatureNetwork(8, TempNetConfig(rho=1.5, tau_max=0.6, hidden=64, references=32))
    best = newton_temperature(logits, 1.5, FLOOR, among)

    def mean_loss(tau: Tensor) -> Tensor:
        return robust_loss(logits, positive, tau, 1.5, among).mean()

    optimizer = torch.optim.SGD(network.parameters(), lr=1.0, momentum=0.9)
    before = mean_loss(network(embedding)).item()
    for _ in range(1000):
        optimizer.zero_grad()
        mean_loss(network(embedding)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    after, minimum = mean_loss(network(embedding)).item(), mean_loss(best.float()).item()
    assert minimum <= after < minimum + 0.1 * (before - minimum)
    learned = network(embedding).detach()
    assert np.corrcoef(learned.numpy(), best.numpy())[0, 1] > 0.8


def test_a_high_temperature_is_a_poor_image() -> None:
    tempnet = method()
    embedding = 7 * torch.randn(5, 8)
    scored = tempnet.score({"embedding": embedding})
    torch.testing.assert_close(scored["embedding"], F.normalize(embedding))
    torch.testing.assert_close(scored["uncertainty"], tempnet.state(F.normalize(embedding)))
    torch.testing.assert_close(scored["quality"], -scored["uncertainty"])
    assert scored["uncertainty"].min() > 0


@pytest.mark.parametrize(
    "settings",
    [
        {"contrast": "memory"},
        {"rho": 0},
        {"tau_min": 0.05},
        {"tau_max": 0},
        {"references": 1},
        {"temperature": 1},
        {"last_layer": "mlp"},
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        TempNetConfig(**settings)  # type: ignore[arg-type]
