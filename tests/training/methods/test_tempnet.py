from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from facerts.errors import Error
from facerts.training.checkpoint import load_checkpoint
from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.loop import train
from facerts.training.methods.tempnet import TemperatureNetwork, TempNet, TempNetConfig, batch_contrast
from tests.losses import batch_of
from tests.training.conftest import MakeRecipe

LABELS = [0, 1, 4]


def method(**settings: object) -> TempNet:
    torch.manual_seed(0)
    return TempNet(TempNetConfig(**{"hidden": 16, "references": 12, "rho": 0.5, **settings}), 8)  # type: ignore[arg-type]


# The network


@pytest.mark.parametrize("last_layer", ["pooling", "linear"])
def test_the_network_by_a_slow_reading_of_its_equations(last_layer: str) -> None:
    torch.manual_seed(1)
    config = TempNetConfig(hidden=6, references=5, rho=1.5, tau_min=0.01, tau_max=0.3, last_layer=last_layer)
    network = TemperatureNetwork(4, config).double()
    with torch.no_grad():
        network.weight.normal_()
        network.bias.fill_(0.2)
        network.features.bias.normal_()
        if network.log_sharpness is not None:
            network.log_sharpness.fill_(math.log(0.3))
    embedding = F.normalize(torch.randn(3, 4, dtype=torch.float64))
    w1, b1 = network.features.weight.detach().numpy(), network.features.bias.detach().numpy()
    w2, w3 = network.references.detach().numpy(), network.weight.detach().numpy()
    for row, tau in zip(embedding.numpy(), network(embedding).tolist(), strict=True):
        v = np.maximum(w1 @ row + b1, 0)
        u = [w2[:, k] @ v / np.sqrt((w2[:, k] ** 2).sum()) for k in range(5)]
        if last_layer == "pooling":
            p = np.exp(np.array(u) / 0.3) / np.exp(np.array(u) / 0.3).sum()
            s = (sum((p[k] - 1 / 5) * w3[k] * u[k] for k in range(5)) - 0.2) / 1.5
        else:
            s = sum(w3[k] * u[k] for k in range(5)) - 0.2
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
    linear = TemperatureNetwork(32, TempNetConfig(last_layer="linear"))
    assert "log_sharpness" not in linear.state_dict()
    assert 0 < linear.weight.abs().max() <= 1 / 16


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


def test_parameters_keep_their_order_by_which_checkpoints_know_them() -> None:
    network = TemperatureNetwork(4, TempNetConfig())
    names = ["references", "log_sharpness", "weight", "bias", "features.weight", "features.bias"]
    assert [name for name, _ in network.named_parameters()] == names


# The method


def test_contrast_in_the_batch_is_with_other_people() -> None:
    torch.manual_seed(2)
    embedding = F.normalize(torch.randn(6, 8, dtype=torch.float64))
    labels = torch.tensor([4, 9, 4, 4, 9, 4])
    logits, positive, contrasted = batch_contrast(embedding, labels)
    for i in range(6):
        assert positive[i].item() == pytest.approx(float(embedding[i] @ embedding[(i + 3) % 6]))
        for k in range(6):
            assert contrasted[i, k] == (labels[i] != labels[k])
            assert logits[i, k].item() == pytest.approx(float(embedding[i] @ embedding[k]))


@pytest.mark.parametrize("contrast", ["batch", "centers"])
def test_the_loss_of_a_step_by_a_slow_loop(contrast: str) -> None:
    torch.manual_seed(3)
    tempnet = method(contrast=contrast, loss_scale=3.0)
    tempnet.state.double()
    centers, embedding = ClassCenters(5, 8).double(), torch.randn(6, 8, dtype=torch.float64)
    loss = tempnet.loss({"embedding": embedding}, batch_of(LABELS, 2), centers)
    unit, labels = F.normalize(embedding), LABELS * 2
    tau = tempnet.state(unit).tolist()
    values = []
    for i in range(6):
        if contrast == "batch":
            others = [float(unit[i] @ unit[k]) for k in range(6) if labels[k] != labels[i]]
            positive = float(unit[i] @ unit[(i + 3) % 6])
        else:
            others = [float(unit[i] @ F.normalize(w, dim=0)) for w in centers.weight.detach()]
            positive = others[labels[i]]
        mean = sum(math.exp((logit - positive) / tau[i]) for logit in others) / len(others)
        values.append(tau[i] * (math.log(mean) + 0.5))
    assert loss.total.item() == pytest.approx(3.0 * sum(values) / 6, rel=1e-9)
    assert loss.parts["robust"].item() == pytest.approx(sum(values) / 6, rel=1e-9)
    np.testing.assert_allclose(loss.per_image["tau"], tau)


@pytest.mark.parametrize("contrast", ["batch", "centers"])
@pytest.mark.parametrize("stop", [True, False])
def test_the_temperatures_train_the_embedding_only_without_stop_gradient(contrast: str, stop: bool) -> None:
    centers, labels = ClassCenters(5, 8).double(), torch.tensor(LABELS * 2)
    embedding = torch.randn(6, 8, dtype=torch.float64, requires_grad=True)
    tempnet = method(contrast=contrast, loss_scale=2.0, stop_gradient=stop)
    tempnet.state.double()
    loss = tempnet.loss({"embedding": embedding}, batch_of(LABELS, 2), centers).total
    (actual,) = torch.autograd.grad(loss, embedding)
    unit = F.normalize(embedding)
    tau, total = tempnet.state(unit), torch.zeros((), dtype=torch.float64)
    if stop:
        tau = tau.detach()
    for i in range(6):
        others = unit[labels != labels[i]] if contrast == "batch" else F.normalize(centers.weight)
        positive = unit[i] @ (unit[(i + 3) % 6] if contrast == "batch" else others[labels[i]])
        total = total + tau[i] * (((others @ unit[i] - positive) / tau[i]).exp().mean().log() + 0.5)
    (expected,) = torch.autograd.grad(2.0 * total / 6, embedding)
    torch.testing.assert_close(actual, expected)


def test_images_without_contrasts_are_left_out() -> None:
    embedding = torch.randn(6, 8, requires_grad=True)
    loss = method().loss({"embedding": embedding}, batch_of([3] * 3, 2), ClassCenters(5, 8))
    loss.total.backward()
    assert loss.total == 0
    assert (embedding.grad == 0).all()  # type: ignore[union-attr]


@pytest.mark.parametrize(("contrast", "hint"), [("batch", "optim.batch_size"), ("centers", "identities")])
def test_too_large_a_rho_is_refused(contrast: str, hint: str) -> None:
    outputs, centers, batch = {"embedding": torch.randn(6, 8)}, ClassCenters(4, 8), batch_of([0, 1, 2], 2)
    # Six views: four are of other people; and there are four centers.
    assert torch.isfinite(method(contrast=contrast, rho=1.38).loss(outputs, batch, centers).total)
    with pytest.raises(Error, match=rf"method\.rho 1\.39 .* log\(4\).*{hint}"):
        method(contrast=contrast, rho=1.39).loss(outputs, batch, centers)


def test_the_temperature_network_has_groups_of_its_own() -> None:
    tempnet, network, centers = method(temperature_lr=0.2), torch.nn.Linear(3, 3), ClassCenters(4, 8)
    network.bias.requires_grad_(False)
    main, matrices, rest = tempnet.parameter_groups(network, centers)
    assert {id(p) for p in main["params"]} == {id(network.weight), id(centers.weight)}
    assert set(main) == {"params"}
    own = {id(tempnet.state.features.weight), id(tempnet.state.references)}
    assert {id(p) for p in matrices["params"]} == own
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
    assert state["per_sample"]["log_denominator"].isfinite().all()
    assert f", tau {lines[-1]['tau_mean']:.4f}\n" in capsys.readouterr().err


def test_a_high_temperature_is_a_poor_image() -> None:
    tempnet = method()
    embedding = 7 * torch.randn(5, 8)
    scored = tempnet.score({"embedding": embedding})
    torch.testing.assert_close(scored["uncertainty"], tempnet.state(F.normalize(embedding)))
    torch.testing.assert_close(scored["quality"], -scored["uncertainty"])
    assert scored["uncertainty"].min() > 0
