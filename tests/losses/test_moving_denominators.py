"""TempNet's moving averages of the denominators, against the batch's own loss and against loops in NumPy."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from facerts.errors import Error, ModelError
from facerts.losses.partial_fc import PartialFC
from facerts.losses.tempnet import UNSEEN, TempNet, moved, with_gradient
from facerts.training.checkpoint import load_checkpoint, load_network, save_checkpoint
from facerts.training.learner import Learner
from tests.loss_examples import Images, batch_for, value_of

Floats = NDArray[np.float64]

RHO = 0.4
CENTERS = PartialFC(3, 6)


class Temperatures(nn.Module):
    """Given temperatures instead of a temperature network."""

    def __init__(self, tau):
        super().__init__()
        self.tau = nn.Parameter(tau)

    def forward(self, _):
        return self.tau


def method(rate, **settings):
    torch.manual_seed(0)
    fields = {"rho": RHO, "hidden": 8, "references": 5, "denominator_rate": rate}
    return TempNet(embedding_size=6, **{**fields, **settings})


def step(images, labels, seed):
    """A batch of two views of each image, unit embeddings and temperatures."""
    random = torch.Generator().manual_seed(seed)
    rows = 2 * len(images)
    batch = Images(torch.tensor(labels * 2), torch.tensor(images * 2), step=seed)
    embedding = F.normalize(torch.randn(rows, 6, generator=random, dtype=torch.float64))
    return batch, embedding, torch.rand(rows, generator=random, dtype=torch.float64) + 0.2


def by_hand(z, tau, labels, images, u, rate):
    """Loss and gradients by unit embeddings and by temperatures; moves u, the averages by image."""
    rows, count = len(z), len(images)
    total, by_z, by_tau, views = 0.0, np.zeros_like(z), np.zeros(rows), {image: [] for image in images}
    for i in range(rows):
        p, image = (i + count) % rows, images[i % count]
        others = [k for k in range(rows) if labels[k % count] != labels[i % count]]
        d = np.array([z[i] @ z[k] - z[i] @ z[p] for k in others])
        g = np.exp(d / tau[i]).mean()
        average = g if image not in u else (1 - rate) * u[image] + rate * g
        views[image].append(average)
        total += tau[i] * (np.log(average) + RHO) / rows
        weights = np.exp(d / tau[i]) / len(others) / average / rows
        by_tau[i] = (np.log(average) + RHO) / rows - (weights * d).sum() / tau[i]
        for weight, k in zip(weights, others, strict=True):
            by_z[i] += weight * (z[k] - z[p])
            by_z[k] += weight * z[i]
            by_z[p] -= weight * z[i]
    u.update({image: sum(values) / 2 for image, values in views.items()})
    return total, by_z, by_tau


@pytest.mark.parametrize("rate", [0.8, 0.1])
def test_losses_gradients_and_averages_of_some_steps_by_loops(rate):
    tempnet, u = method(rate), dict[int, float]()
    # Image 9 comes late, and lengthens the averages.
    for seed, (images, labels) in enumerate(
        [([4, 0, 2], [1, 0, 2]), ([2, 4, 1], [2, 1, 0]), ([9, 2, 4], [0, 2, 1]), ([4, 9, 0], [1, 0, 0])]
    ):
        batch, embedding, tau = step(images, labels, seed)
        total, by_z, by_tau = by_hand(embedding.numpy(), tau.numpy(), labels, images, u, rate)
        tempnet.state = Temperatures(tau)
        loss = value_of(tempnet, {"embedding": embedding.requires_grad_()}, batch, CENTERS).total
        assert loss.item() == pytest.approx(total, rel=1e-10)
        actual_z, actual_tau = torch.autograd.grad(loss, [embedding, tempnet.state.tau])
        # The gradient by a unit vector's normalization has no part along the vector.
        z = embedding.detach().numpy()
        np.testing.assert_allclose(actual_z, by_z - (by_z * z).sum(1, keepdims=True) * z, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(actual_tau, by_tau, rtol=1e-9, atol=1e-12)
        averages = tempnet.per_sample["log_denominator"].exp()
        expected = [u.get(image, 0.0) for image in range(len(averages))]
        np.testing.assert_allclose(averages, expected, rtol=1e-12)
    assert len(averages) == 10


def test_a_fixed_temperature_is_sogclr():
    images, labels, u = [4, 0, 2], [0, 1, 4], dict[int, float]()
    fixed = TempNet(embedding_size=6, rho=RHO, temperature="fixed", tau=0.2, denominator_rate=0.3)
    for seed in range(3):
        batch, embedding, _ = step(images, labels, seed)
        loss = value_of(fixed, {"embedding": embedding}, batch, CENTERS)
        total, _, _ = by_hand(embedding.numpy(), np.full(6, 0.2), labels, images, u, 0.3)
        assert loss.total.item() == pytest.approx(total, rel=1e-9)
        assert (loss.per_image["tau"] == 0.2).all()
    assert list(fixed.per_sample) == ["log_denominator"]


def test_far_exponents_stay_finite():
    log_g = torch.tensor([-2000.0, 2000.0, -2000.0, 5.0], requires_grad=True)
    before = torch.tensor([2000.0, -2000.0, UNSEEN, UNSEEN])
    after = moved(before, log_g.detach(), 0.8)
    torch.testing.assert_close(after, torch.tensor([2000 + math.log(0.2), 2000 + math.log(0.8), -2000.0, 5.0]))
    with_gradient(after, log_g).sum().backward()
    # g/u: 0, and 1/γ at most.
    torch.testing.assert_close(log_g.grad, torch.tensor([0.0, 1.25, 1.0, 1.0]))


def test_a_measured_loss_is_that_of_its_batch_and_moves_nothing():
    first, embedding, _ = step([0, 1, 2], [0, 1, 2], 1)
    second, other, _ = step([0, 1, 2], [0, 1, 2], 2)
    tempnet, alone = method(0.5), method(1.0)
    for each in (tempnet, alone):
        each.state.double()
    value_of(tempnet, {"embedding": embedding}, first, CENTERS)
    before = tempnet.per_sample["log_denominator"].clone()
    tempnet.state.eval()
    measured = value_of(tempnet, {"embedding": other}, second, CENTERS).total
    assert torch.equal(measured, value_of(alone, {"embedding": other}, second, CENTERS).total)
    assert torch.equal(tempnet.per_sample["log_denominator"], before)
    # A batch limits ρ only while its own denominators are used.
    large = method(0.5, rho=8.0)
    assert torch.isfinite(value_of(large, {"embedding": embedding.float()}, first, CENTERS).total)
    large.state.eval()
    with pytest.raises(Error, match=r"method\.rho 8 must be below log\(4\)"):
        value_of(large, {"embedding": embedding.float()}, first, CENTERS)


@pytest.mark.parametrize("temperature", ["network", "individual"])
def test_checkpoints_hold_the_values_of_images_and_a_run_continues_with_them(make_recipe, tmp_path, temperature):
    settings = f"{{name: tempnet, denominator_rate: 0.4, rho: 1, temperature: {temperature}}}"
    recipe = make_recipe(f"method={settings}", "backbone.dropout=0")
    random = torch.Generator().manual_seed(8)
    crops = torch.randint(0, 256, (8, 112, 112, 3), dtype=torch.uint8, generator=random)
    batches = [
        Images(torch.tensor([0, 1, 2, 3] * 2), torch.tensor(images * 2), number)
        for number, images in enumerate([[7, 3, 0, 5], [3, 6, 7, 1]])
    ]
    learner, resumed = Learner(recipe, 4), Learner(recipe, 4)
    learner.step(batch_for(crops, batches[0]), 0, 0.05)
    save_checkpoint(tmp_path / "checkpoint.pt", recipe, {"step": 1, "position": 1.0, **learner.state_dict()})
    assert load_network(tmp_path).loss.state.state_dict().keys() == learner.loss.state.state_dict().keys()
    _, state = load_checkpoint(tmp_path / "checkpoint.pt")
    names = {"log_denominator"} | ({"tau"} if temperature == "individual" else set())
    assert {name: values.shape for name, values in state["per_sample"].items()} == dict.fromkeys(names, (8,))
    resumed.load_state_dict(state)
    losses = [each.step(batch_for(crops, batches[1]), 1, 0.05).total for each in (learner, resumed)]
    assert torch.equal(*losses)
    for name in names:
        assert torch.equal(learner.loss.per_sample[name], resumed.loss.per_sample[name])
    save_checkpoint(tmp_path / "other.pt", recipe, {**state, "per_sample": {"log_denominator": 3}})
    with pytest.raises(ModelError, match="per_sample"):
        load_checkpoint(tmp_path / "other.pt")
