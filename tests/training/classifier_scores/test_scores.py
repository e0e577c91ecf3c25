"""The scores as functions of logits and embeddings, against loops, finite differences and other packages."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.training.classifier_scores.energy import negative_energy
from facerts.training.classifier_scores.max_softmax import max_softmax, mean_softmax
from facerts.training.classifier_scores.odin import perturbed
from facerts.training.classifier_scores.ser_fiq import stability
from facerts.training.methods.robust_loss import newton_temperature


def logits(seed: int = 0, rows: int = 7, classes: int = 20, scale: float = 5.0) -> Tensor:
    return scale * torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1000.0])
def test_max_softmax_is_the_logarithm_of_torchs(temperature: float) -> None:
    expected = torch.softmax(logits().double() / temperature, dim=1).max(dim=1).values
    torch.testing.assert_close(max_softmax(logits(), temperature).exp(), expected)


def test_max_softmax_separates_values_that_are_1_in_float32() -> None:
    sure = torch.tensor([[60.0, 0.0], [64.0, 0.0]])
    assert torch.softmax(sure, dim=1).max(dim=1).values.tolist() == [1.0, 1.0]
    first, second = max_softmax(sure).float().tolist()
    assert first < second < 0


@pytest.mark.parametrize("temperature", [0.5, 1.0, 10.0])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_negative_energy_against_a_loop(temperature: float, scale: float) -> None:
    example = logits(scale=scale)
    expected = []
    for row in example.tolist():
        top = max(row)
        summed = math.fsum(math.exp((value - top) / temperature) for value in row)
        expected.append(top + temperature * math.log(summed))
    torch.testing.assert_close(
        negative_energy(example, temperature),
        torch.tensor(expected, dtype=torch.float64),
        rtol=1e-12,
        atol=0.0,
    )


def test_mean_softmax_against_a_loop_over_members() -> None:
    members = [logits(seed) for seed in range(5)]
    expected = []
    for row in range(7):
        mean = np.zeros(20)
        for member in members:
            exponentials = np.exp(member[row].double().numpy())
            mean += exponentials / exponentials.sum() / len(members)
        expected.append(math.log(mean.max()))
    np.testing.assert_allclose(mean_softmax(members), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="at least one member"):
        mean_softmax([])


def test_stability_against_a_loop_over_pairs() -> None:
    passes = torch.randn(6, 4, 9, generator=torch.Generator().manual_seed(1)).double()
    expected = []
    for image in range(4):
        unit = [vector / math.sqrt(float(vector @ vector)) for vector in passes[:, image].numpy()]
        distances = [math.dist(unit[i], unit[j]) for i in range(6) for j in range(i + 1, 6)]
        expected.append(2 / (1 + math.exp(sum(distances) / len(distances))))
    np.testing.assert_allclose(stability(passes), expected, rtol=1e-12)
    torch.testing.assert_close(stability(passes[:1].expand(6, 4, 9)), torch.ones(4).double())


def test_embeddings_that_hardly_differ_are_separated() -> None:
    base = F.normalize(torch.randn(1, 1, 64, generator=torch.Generator().manual_seed(2)), dim=2)
    noise = torch.randn(30, 1, 64, generator=torch.Generator().manual_seed(3))
    scored = [stability(base + size * noise).item() for size in (1e-5, 2e-5, 4e-5)]
    gaps = [1 - score for score in scored]
    assert gaps[1] / gaps[0] == pytest.approx(2, rel=0.05)
    assert gaps[2] / gaps[1] == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("rho", [0.3, 1.0, 2.0])
def test_solved_temperature_against_a_scalar_search(rho: float) -> None:
    cosine = torch.tanh(logits(4, classes=30, scale=0.3))
    for row, solved in zip(cosine.double().numpy(), newton_temperature(cosine, rho, 1e-3), strict=True):

        def loss(log_tau: float, row: np.ndarray = row) -> float:  # type: ignore[type-arg]
            tau = math.exp(log_tau)
            top = row.max()
            return top + tau * (math.log(np.exp((row - top) / tau).mean()) + rho)

        found = minimize_scalar(loss, bounds=(math.log(1e-3), math.log(1e2)), method="bounded")
        assert float(solved) == pytest.approx(math.exp(found.x), rel=1e-2)
        assert loss(math.log(float(solved))) <= found.fun + 1e-12


class Tiny(nn.Module):
    """A nonlinear function from images of 4 x 4 pixels to five logits."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.inner = nn.Parameter(torch.randn(48, 12, generator=generator).double() / 7)
        self.outer = nn.Parameter(torch.randn(12, 5, generator=generator).double())

    def forward(self, images: Tensor) -> Tensor:
        return torch.tanh(images.flatten(1) @ self.inner) @ self.outer


@pytest.mark.parametrize("temperature", [1.0, 1000.0])
def test_odins_step_against_finite_differences(temperature: float) -> None:
    network = Tiny()
    images = torch.randn(3, 3, 4, 4, generator=torch.Generator().manual_seed(6)).double()
    classes = network(images).argmax(dim=1).tolist()

    def score(images: Tensor) -> Tensor:
        return max_softmax(network(images), temperature)

    def log_probability(image: Tensor, label: int) -> float:
        scores = (network(image[None])[0] / temperature).tolist()
        return scores[label] - math.log(sum(math.exp(score) for score in scores))

    expected = images.clone()
    for row in range(len(images)):
        for place in np.ndindex(3, 4, 4):
            step = torch.zeros(3, 4, 4, dtype=torch.float64)
            step[place] = 1e-5
            up, down = (log_probability(images[row] + sign * step, classes[row]) for sign in (1, -1))
            expected[row][place] += 0.25 * math.copysign(1.0, up - down)
    moved = perturbed(score, images, 0.25)
    torch.testing.assert_close(moved, expected)
    assert not moved.requires_grad
    assert all(parameter.grad is None for parameter in network.parameters())
    assert torch.equal(perturbed(score, images, 0.0), images)


def test_pytorch_ood_gives_the_same_scores() -> None:
    detector = pytest.importorskip(
        "pytorch_ood.detector", reason="needs pytorch-ood and torchvision", exc_type=ImportError
    )
    example = logits().double()
    torch.testing.assert_close(max_softmax(example, 3.0).exp(), -detector.MaxSoftmax.score(example, 3.0))
    torch.testing.assert_close(negative_energy(example, 3.0), -detector.EnergyBased.score(example, 3.0))
    network = Tiny()
    images = torch.randn(3, 3, 4, 4, generator=torch.Generator().manual_seed(7)).double()
    odin = detector.ODIN(network, eps=0.01, temperature=1000.0)

    def score(images: Tensor) -> Tensor:
        return max_softmax(network(images), 1000.0)

    own = score(perturbed(score, images, 0.01))
    torch.testing.assert_close(own.exp(), -odin(images))
    # Without dropout, each of their passes is the network itself.
    passes = detector.MCD(network, samples=3, mode="mean")
    torch.testing.assert_close(mean_softmax([network(images)] * 3).exp(), -passes(images).double())
