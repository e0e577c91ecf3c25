"""Properties of every method in the registry; new methods are tested without a change here."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from facerts.training import nn as networks
from facerts.training.checkpoint import save_checkpoint
from facerts.training.learner import Learner
from facerts.training.methods import METHODS, Batch
from facerts.training.recipe import Recipe

SIZE, PEOPLE, IMAGES, STEPS = 16, 12, 24, 60


class Coarse(nn.Sequential):
    """A fast trunk: mean colors of a coarse grid, with a final BatchNorm like all trunks."""

    features = 147

    def __init__(self, *, width: float, dropout: float) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(7), nn.Conv2d(3, 3, 1), nn.Flatten(), nn.BatchNorm1d(147))


@pytest.fixture(autouse=True)
def _coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(networks.BACKBONES, "coarse", Coarse)  # type: ignore[arg-type]


def recipe_of(name: str, precision: str, folder: Path) -> Recipe:
    """A recipe with the method on the coarse network; a method that trains heads gets a trained network."""
    options = {"rho": 1.0} if name == "tempnet" else {}
    fields = {
        "name": "every",
        "seed": 1,
        "data": {"name": "none", "terms": "none", "train": "none", "per_identity": 2},
        "backbone": {"name": "coarse", "embedding_size": SIZE},
        "method": {"name": name, **options},
        "optim": {"epochs": 1, "batch_size": IMAGES, "lr": 0.05},
        "compute": {"device": "cpu", "precision": precision, "threads": 1},
    }
    if METHODS[name].trains == "heads":
        first = Recipe.model_validate({**fields, "method": {"name": "arcface"}})
        save_checkpoint(folder / "first.pt", first, {"step": 1, **Learner(first, PEOPLE).state_dict()})
        fields["backbone"] = {"name": "coarse", "embedding_size": SIZE, "weights": str(folder / "first.pt")}
    return Recipe.model_validate(fields)


@lru_cache
def images(views: int, step: int, side: int = 14) -> tuple[Tensor, Batch]:
    """Noise around a color for each person; two images of each, small, as the network sees a grid of 7 × 7."""
    random = torch.Generator().manual_seed(step)
    labels = torch.arange(IMAGES) % PEOPLE
    colors = torch.randint(40, 216, (PEOPLE, 1, 1, 3), generator=torch.Generator().manual_seed(7))
    noise = torch.randint(-40, 40, (views, IMAGES, side, side, 3), generator=random)
    crops = (colors[labels] + noise).clamp(0, 255).to(torch.uint8).reshape(-1, side, side, 3)
    batch = Batch(labels.repeat(views), torch.arange(IMAGES).repeat(views), step=step, seed=1, ramp=1.0)
    return crops, batch


@torch.no_grad()
def start_at(learner: Learner, start: str) -> None:
    """Put the network where margins, angles and logarithms have singularities."""
    linear, norm = learner.network.embedding
    linear.weight.zero_()
    linear.bias.zero_()
    if start == "zero features":
        for head in learner.network.heads.values():
            head[0].weight.zero_()
            head[0].bias.zero_()
        return
    # Every embedding is the same vector: a center, or its opposite.
    norm.bias.copy_(torch.ones(SIZE))
    direction = 1.0 if start == "on the centers" else -1.0
    learner.centers.weight.copy_(direction * torch.ones(PEOPLE, SIZE))


@pytest.mark.slow
@pytest.mark.parametrize("start", ["zero features", "on the centers", "opposite to the centers"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("name", METHODS)
def test_training_stays_finite_from_hostile_starts(
    name: str, precision: str, start: str, tmp_path: Path
) -> None:
    learner = Learner(recipe_of(name, precision, tmp_path), PEOPLE)
    start_at(learner, start)
    for step in range(STEPS):
        crops, batch = images(learner.method.views, step % 4)
        loss = learner.step(crops, batch, 0.05)  # raises if the loss is not finite
        assert torch.isfinite(loss.total)
    for part in (learner.network, learner.centers, learner.method.state):
        for key, value in part.state_dict().items():
            assert torch.isfinite(value).all(), key


@pytest.mark.parametrize("name", METHODS)
def test_scores_are_finite_and_complete(name: str, tmp_path: Path) -> None:
    learner = Learner(recipe_of(name, "fp32", tmp_path), PEOPLE)
    crops, _ = images(1, 0, side=112)
    outputs = learner.embedder()(crops.numpy())
    assert outputs.embedding.shape == (IMAGES, SIZE)
    torch.testing.assert_close(
        torch.from_numpy(outputs.embedding).norm(dim=1), torch.ones(IMAGES), atol=1e-5, rtol=0
    )
    for values in (outputs.norm, outputs.quality, outputs.uncertainty):
        assert values is not None
        assert values.shape == (IMAGES,)
        assert torch.isfinite(torch.from_numpy(values)).all()
