"""The scores as functions of logits and embeddings, against loops and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.training.classifier_scores.energy import negative_energy
from facerts.training.classifier_scores.max_softmax import max_softmax, mean_softmax
from facerts.training.classifier_scores.mc_dropout import keyed_masks
from facerts.training.classifier_scores.odin import perturbed
from facerts.training.classifier_scores.ser_fiq import stability


def logits(seed: int = 0, rows: int = 7, classes: int = 20, scale: float = 5.0) -> Tensor:
    return scale * torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed))


def test_max_softmax_separates_values_that_are_1_in_float32() -> None:
    sure = torch.tensor([[60.0, 0.0], [64.0, 0.0]])
    assert torch.softmax(sure, dim=1).max(dim=1).values.tolist() == [1.0, 1.0]
    first, second = max_softmax(sure).float().tolist()
    assert first < second < 0


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_negative_energy_against_a_loop(scale: float) -> None:
    for temperature in (0.5, 1.0, 10.0):
        expected = []
        for row in logits(scale=scale).tolist():
            top = max(row)
            summed = math.fsum(math.exp((value - top) / temperature) for value in row)
            expected.append(top + temperature * math.log(summed))
        actual = negative_energy(logits(scale=scale), temperature)
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_stability_against_a_loop_over_pairs() -> None:
    passes = torch.randn(6, 4, 9, generator=torch.Generator().manual_seed(1)).double()
    expected = []
    for image in range(4):
        unit = [vector / math.sqrt(float(vector @ vector)) for vector in passes[:, image].numpy()]
        distances = [math.dist(unit[i], unit[j]) for i in range(6) for j in range(i + 1, 6)]
        expected.append(2 / (1 + math.exp(sum(distances) / len(distances))))
    np.testing.assert_allclose(stability(passes), expected, rtol=1e-12)
    torch.testing.assert_close(stability(passes[:1].expand(6, 4, 9)), torch.ones(4).double())
    # Embeddings that hardly differ are separated.
    base, noise = F.normalize(passes[:1, :1]).float(), torch.randn(30, 1, 9)
    gaps = [1 - stability(base + size * noise).item() for size in (1e-5, 2e-5, 4e-5)]
    assert [gaps[1] / gaps[0], gaps[2] / gaps[1]] == pytest.approx([2, 2], rel=0.05)


def test_masks_are_fixed_and_keep_their_share() -> None:
    masks = keyed_masks(100, 400, 0.3)
    assert masks.float().mean().item() == pytest.approx(0.7, abs=0.01)
    assert torch.equal(keyed_masks(7, 400, 0.3), masks[:7])
    # Independent of one another: two masks agree where both keep or both drop.
    agreement = (masks[0] == masks[1:]).float().mean(dim=1)
    assert agreement.mean().item() == pytest.approx(0.7**2 + 0.3**2, abs=0.01)


@pytest.mark.parametrize("temperature", [1.0, 1000.0])
def test_odins_step_against_finite_differences(temperature: float) -> None:
    random = torch.Generator().manual_seed(5)
    inner, outer, images = (
        torch.randn(*shape, generator=random).double() for shape in ((48, 12), (12, 5), (3, 3, 4, 4))
    )
    inner.requires_grad_()

    def network(images: Tensor) -> Tensor:
        return torch.tanh(images.flatten(1) @ inner / 7) @ outer

    def score(images: Tensor) -> Tensor:
        return max_softmax(network(images), temperature)

    def log_probability(image: Tensor, label: int) -> float:
        scores = (network(image[None])[0] / temperature).tolist()
        return scores[label] - math.log(sum(math.exp(score) for score in scores))

    classes, expected = network(images).argmax(dim=1).tolist(), images.clone()
    for row in range(len(images)):
        for place in np.ndindex(3, 4, 4):
            step = torch.zeros(3, 4, 4, dtype=torch.float64)
            step[place] = 1e-5
            up, down = (log_probability(images[row] + sign * step, classes[row]) for sign in (1, -1))
            expected[row][place] += 0.25 * math.copysign(1.0, up - down)
    moved = perturbed(score, images, 0.25)
    torch.testing.assert_close(moved, expected)
    assert not moved.requires_grad
    assert inner.grad is None
    assert torch.equal(perturbed(score, images, 0.0), images)


def test_no_members_have_no_mean() -> None:
    with pytest.raises(ValueError, match="at least one member"):
        mean_softmax([])
