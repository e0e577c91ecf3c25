import json
import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional as F

from facerts.errors import Error
from facerts.losses.partial_fc import PartialFC
from facerts.losses.tempnet import UNSEEN, TemperatureNetwork, TempNet
from facerts.training.checkpoint import load_checkpoint
from facerts.training.compose import compose
from facerts.training.loop import train
from facerts.training.recipe import load_recipe
from tests.loss_examples import Images, batch_of, value_of

LABELS = [0, 1, 4]


def method(**settings):
    torch.manual_seed(0)
    return TempNet(embedding_size=8, **{"hidden": 16, "references": 12, "rho": 0.5, **settings})


def small(**settings):
    return TempNet(embedding_size=8, **{"rho": 0.5, **settings})


# The network


@pytest.mark.parametrize("last_layer", ["pooling", "linear"])
def test_the_network_by_a_slow_reading_of_its_equations(last_layer):
    torch.manual_seed(1)
    config = TempNet(hidden=6, references=5, rho=1.5, tau_min=0.01, tau_max=0.3, last_layer=last_layer)
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
        v = 1 / (1 + np.exp(-(w1 @ row + b1)))
        u = [w2[:, k] @ v / np.sqrt((w2[:, k] ** 2).sum()) for k in range(5)]
        if last_layer == "pooling":
            p = np.exp(np.array(u) / 0.3) / np.exp(np.array(u) / 0.3).sum()
            s = (sum((p[k] - 1 / 5) * w3[k] * u[k] for k in range(5)) - 0.2) / 1.5
        else:
            s = sum(w3[k] * u[k] for k in range(5)) - 0.2
        assert tau == pytest.approx(0.01 + 0.29 / (1 + math.exp(-s)), rel=1e-12)


def test_the_network_starts_as_the_paper_says():
    network = TemperatureNetwork(32, TempNet())
    assert network.references.shape == (256, 256)
    assert network.log_sharpness.exp().item() == pytest.approx(0.01)
    assert (network.weight == 1).all()
    assert network.bias == 0
    assert (network.references >= 0).all()
    tau = network(F.normalize(torch.randn(100, 32)))
    assert 0.02 < tau.min() < tau.max() < 0.04
    linear = TemperatureNetwork(32, TempNet(last_layer="linear"))
    assert "log_sharpness" not in linear.state_dict()
    assert 0 < linear.weight.abs().max() <= 1 / 16


def test_temperatures_keep_their_range_whatever_is_learned():
    network = TemperatureNetwork(8, TempNet(hidden=16, references=12))
    embedding = F.normalize(torch.randn(9, 8))
    for bias in (-1e4, 1e4):
        for sharpness in (-200.0, 50.0):
            with torch.no_grad():
                network.bias.fill_(bias)
                network.log_sharpness.fill_(sharpness)
            tau = network(embedding)
            assert torch.isfinite(tau).all()
            assert 0.001 - 1e-9 <= tau.min() <= tau.max() <= 0.05 + 1e-9


# The method


@pytest.mark.parametrize("contrast", ["batch", "centers"])
@pytest.mark.parametrize("loss_name", ["robust", "contrastive"])
@pytest.mark.parametrize("stop", [True, False])
def test_a_step_by_a_loop_and_temperatures_train_the_embedding_only_without_stop_gradient(contrast, loss_name, stop):
    centers, labels = PartialFC(5, 8).double(), torch.tensor(LABELS * 2)
    embedding = torch.randn(6, 8, dtype=torch.float64, requires_grad=True)
    tempnet = method(contrast=contrast, loss=loss_name, stop_gradient=stop)
    tempnet.state.double()
    loss = value_of(tempnet, {"embedding": embedding}, batch_of(LABELS, 2), centers)
    (actual,) = torch.autograd.grad(loss.total, embedding)
    unit = F.normalize(embedding)
    tau, total = tempnet.state(unit), torch.zeros((), dtype=torch.float64)
    torch.testing.assert_close(loss.per_image["tau"], tau.detach())
    if stop:
        tau = tau.detach()
    for i in range(6):
        others = unit[labels != labels[i]] if contrast == "batch" else F.normalize(centers.weight)
        positive = unit[i] @ (unit[(i + 3) % 6] if contrast == "batch" else others[labels[i]])
        ordinary = ((others @ unit[i] - positive) / tau[i]).exp().mean().log()
        total = total + (tau[i] * (ordinary + 0.5) if loss_name == "robust" else ordinary)
    torch.testing.assert_close(loss.total, total / 6, rtol=1e-9, atol=0)
    (expected,) = torch.autograd.grad(total / 6, embedding)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("temperature", ["network", "individual"])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_images_without_contrasts_are_left_out_and_keep_what_they_have(rate, temperature):
    tempnet = small(temperature=temperature, denominator_rate=rate)
    embedding = torch.randn(6, 8, requires_grad=True)
    loss = value_of(tempnet, {"embedding": embedding}, batch_of([3] * 3, 2), PartialFC(5, 8))
    loss.total.backward()
    assert loss.total == 0
    assert (embedding.grad == 0).all()
    kept = {"log_denominator": UNSEEN} if rate < 1 else {}
    kept |= {"tau": 0.01} if temperature == "individual" else {}
    assert tempnet.per_sample.keys() == kept.keys()
    for name, value in kept.items():
        assert (tempnet.per_sample[name] == torch.tensor(value)).all()


@pytest.mark.parametrize(("contrast", "hint"), [("batch", "optim.batch_size"), ("centers", "identities")])
def test_too_large_a_rho_is_refused(contrast, hint):
    outputs, centers, batch = {"embedding": torch.randn(6, 8)}, PartialFC(4, 8), batch_of([0, 1, 2], 2)
    # Six views: four are of other people; and there are four centers.
    assert torch.isfinite(value_of(method(contrast=contrast, rho=1.38), outputs, batch, centers).total)
    with pytest.raises(Error, match=rf"method\.rho 1\.39 .* log\(4\).*{hint}"):
        value_of(method(contrast=contrast, rho=1.39), outputs, batch, centers)
    # Only the robust loss of temperatures that are learned bounds it.
    for settings in ({"loss": "contrastive"}, {"temperature": "fixed"}):
        assert torch.isfinite(value_of(small(contrast=contrast, rho=9.0, **settings), outputs, batch, centers).total)
    with pytest.raises(Error, match=r"method\.rho 9"):
        value_of(small(contrast=contrast, rho=9.0, temperature="individual"), outputs, batch, centers)


def test_the_temperature_network_has_groups_of_its_own():
    centers, network = PartialFC(4, 8), torch.nn.Linear(3, 3)
    tempnet = method(temperature_lr=0.2, centers=centers)
    network.bias.requires_grad_(False)
    main, matrices, rest = tempnet.parameter_groups(network)
    assert {id(p) for p in main["params"]} == {id(network.weight), id(centers.weight)}
    assert set(main) == {"params"}
    own = {id(tempnet.state.features.weight), id(tempnet.state.references)}
    assert {id(p) for p in matrices["params"]} == own
    assert len(matrices["params"]) + len(rest["params"]) == len(list(tempnet.state.parameters()))
    assert (matrices["lr_scale"], matrices["weight_decay"]) == (0.2, 0.02)
    assert (rest["lr_scale"], rest["weight_decay"]) == (0.2, 0.0)


@pytest.mark.slow
def test_a_run_by_the_optimizer_of_the_recipe(make_recipe, tmp_path, capsys):
    optim = {**compose("ours/papers_tempnet")[0]["optim"], "lr": 2e-4}
    optim |= {"epochs": 2, "batch_size": 16, "warmup_epochs": 0.5}
    settings = "{name: tempnet, rho: 8, temperature_lr: 0.25, denominator_rate: 0.8}"
    recipe = make_recipe(f"method={settings}", f"optim={json.dumps(optim)}")
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


def test_its_optimizer_holds_on_every_base():
    for base in ("casia", "deepglint", "faces_small", "ours/papers"):
        recipe = load_recipe(f"{base}_tempnet")
        optim = recipe.optim
        # Where the best temperatures have the paper's mean.
        assert 0.3 < math.log(2 * optim.batch_size - 2) - recipe.method["rho"] < 0.9
        assert (optim.algorithm, optim.schedule, optim.weight_decay) == ("adamw", "cosine", 0.02)


def test_a_high_temperature_is_a_poor_image():
    tempnet = method()
    embedding = 7 * torch.randn(5, 8)
    scored = tempnet.score({"embedding": embedding})
    torch.testing.assert_close(scored["uncertainty"], tempnet.state(F.normalize(embedding)))
    torch.testing.assert_close(scored["quality"], -scored["uncertainty"])
    assert scored["uncertainty"].min() > 0


# Temperatures without a network


def test_a_step_of_individual_temperatures_by_the_derivative_of_their_losses():
    settings = {"temperature": "individual", "tau": 0.03, "tau_step": 0.002, "rho": 0.5}
    isogclr = small(**settings)
    # Images 5 and 2 in the first step, and 5 and 7 in the second.
    expected = {2: 0.03, 5: 0.03, 7: 0.03}
    for seed, images in enumerate(([5, 2], [5, 7])):
        random = torch.Generator().manual_seed(seed)
        z = F.normalize(torch.randn(4, 8, dtype=torch.float64, generator=random) * 0.2 + 1)
        batch = Images(torch.tensor([0, 1, 0, 1]), torch.tensor(images * 2), step=seed)
        loss = value_of(isogclr, {"embedding": z}, batch, PartialFC(2, 8))
        assert loss.per_image["tau"].tolist() == pytest.approx([expected[i] for i in images] * 2)
        slopes = {image: [] for image in images}
        for i in range(4):
            tau = expected[images[i % 2]]
            scaled = np.array([float(z[i] @ z[k]) / tau for k in range(4) if k % 2 != i % 2])
            p = np.exp(scaled) / np.exp(scaled).sum()
            # f'(τ), Eq. 10 of the paper.
            slopes[images[i % 2]].append(np.log(np.exp(scaled).mean()) - (p * scaled).sum() + 0.5)
        for image, slope in slopes.items():
            expected[image] -= 0.002 * sum(slope) / 2
        own = isogclr.per_sample["tau"]
        assert own[[2, 5, 7][: 2 + seed]].tolist() == pytest.approx(
            [expected[image] for image in (2, 5, 7)[: 2 + seed]], rel=1e-9
        )
        assert not own.requires_grad
    assert own[[0, 1, 3, 4, 6]].tolist() == pytest.approx([0.03] * 5)


def test_a_step_of_individual_temperatures_is_bounded_and_keeps_their_range():
    # All contrasts alike: f' is ρ.
    outputs = {"embedding": torch.ones(6, 8)}
    for tau_step, expected in ((0.0001, 0.01 - 0.0001 * 5), (1.0, 0.001)):
        isogclr = small(temperature="individual", rho=30.0, tau_step=tau_step, denominator_rate=0.5)
        value_of(isogclr, outputs, batch_of(LABELS, 2), PartialFC(5, 8))
        np.testing.assert_allclose(isogclr.per_sample["tau"][50:], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau": 0.02}, "network does not read tau;"),
        ({"tau_step": 0.1}, "network does not read tau_step"),
        ({"temperature": "individual", "loss": "contrastive"}, "individual does not read loss"),
        ({"temperature": "individual", "tau": 0.06}, "tau 0.06 must lie between"),
        ({"temperature": "fixed", "tau_max": 0.2}, "fixed does not read tau_max"),
        ({"temperature": "fixed", "stop_gradient": False}, "fixed does not read stop_gradient"),
        ({"contrast": "centers", "denominator_rate": 0.5}, "nothing to average"),
    ],
)
def test_a_setting_that_nothing_would_read_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        TempNet(**settings)
