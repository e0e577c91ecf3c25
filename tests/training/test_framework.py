"""What a method may require of the loop, each tested with a method of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from facerts.embedding import load_embedder
from facerts.losses import LOSSES
from facerts.losses.arcface import ArcFace
from facerts.losses.face_loss import LossValue, Outputs
from facerts.losses.rts import RTS
from facerts.training.batch import Batch
from facerts.training.checkpoint import FILE, load_checkpoint, load_network
from facerts.training.export.from_checkpoint import export_run
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from facerts.training.loop import train
from facerts.training.recipe import RecipeError
from tests.training.conftest import MakeRecipe


class TwoViews(ArcFace):
    name = "two_views"
    views = 2
    sampler = "identities"


class HeadsAlone(RTS):
    name = "heads_alone"
    trains = "heads"


class Counts(ArcFace):
    """Counts its steps in its state, scales the quality by a parameter of its own, and learns it slowly."""

    name = "counts"

    def build_state(self) -> nn.Module:
        return _Counter(self.embedding_size)

    def parameter_groups(self, network: nn.Module) -> list[dict[str, object]]:
        parameters = [p for p in (*network.parameters(), *self.centers.parameters()) if p.requires_grad]
        own = {"params": list(self.state.parameters()), "lr_scale": 0.0, "weight_decay": 0.0}
        return [{"params": parameters}, own]

    def compute(self, outputs: Outputs, labels: Tensor, **options: Any) -> LossValue:
        self.state.steps += 1
        loss = super().compute(outputs, labels, **options)
        return LossValue(loss.total + self.state.gain.square().sum(), loss.parts)

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        scored = super().score(outputs)
        return {**scored, "quality": scored["embedding"][:, 0] * self.state.gain[0]}


class _Counter(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.gain = nn.Parameter(torch.full((size,), 3.0))


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for method in (TwoViews, HeadsAlone, Counts):
        monkeypatch.setitem(LOSSES, method.name, method)


def test_a_method_gets_two_views_of_several_images_of_each_person(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe(
        "method.name=two_views", "data.per_identity=4", "data.augmentation={shift: 0.1, rotation: 8}"
    )
    crops, labels, samples, *_ = next(TrainingData(recipe).batches(0, 1))
    assert crops.shape == (32, 112, 112, 3)
    assert labels[:16].tolist() == labels[16:].tolist()
    assert samples[:16].tolist() == samples[16:].tolist()
    runs = labels[:16].reshape(4, 4)
    assert (runs == runs[:, :1]).all()
    different = [
        (a.float() - b.float()).abs().mean().item() for a, b in zip(crops[:16], crops[16:], strict=True)
    ]
    assert min(different) > 0.5
    # The first view is the one that a method with a single view gets.
    one_view = make_recipe(
        "method.name=arcface", "data.augmentation={shift: 0.1, rotation: 8}", "optim.batch_size=64"
    )
    all_crops, _, all_samples, *_ = next(TrainingData(one_view).batches(0, 1))
    position = all_samples.tolist().index(int(samples[0]))
    assert torch.equal(all_crops[position], crops[0])


def test_a_batch_that_does_not_divide_into_people_is_refused(make_recipe: MakeRecipe) -> None:
    with pytest.raises(
        RecipeError, match=r"optim\.batch_size of 16 must be a multiple of data\.per_identity 3"
    ):
        make_recipe("method.name=two_views", "data.per_identity=3")


def test_training_heads_does_not_change_the_network(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    train(make_recipe("method.name=arcface", "optim.epochs=1", "optim.milestones=[]"), tmp_path / "first")
    with pytest.raises(RecipeError, match=r"set backbone\.weights to its run"):
        make_recipe("method.name=heads_alone")
    recipe = make_recipe("method.name=heads_alone", f"backbone.weights={tmp_path / 'first'}")
    learner = Learner(recipe, identities=8)
    _, first = load_checkpoint(tmp_path / "first" / FILE)
    before = {name: value.clone() for name, value in learner.network.state_dict().items()}
    for name, value in before.items():
        if not name.startswith("heads."):
            assert torch.equal(value, first["network"][name]), name
    assert torch.equal(learner.centers.weight, first["centers"]["weight"])
    crops = torch.randint(0, 256, (16, 112, 112, 3), dtype=torch.uint8)
    for step in range(3):
        learner.step(Batch.of(crops, torch.arange(16) % 8, torch.arange(16)), step, 0.05)
    after = learner.network.state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed
    assert all(name.startswith("heads.") for name in changed)


@pytest.mark.slow
def test_a_methods_state_is_saved_resumed_and_exported(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = make_recipe("method.name=counts", "optim.epochs=1", "optim.milestones=[]")
    train(recipe, tmp_path / "run")
    _, state = load_checkpoint(tmp_path / "run" / FILE)
    assert state["method"]["steps"] == 4
    # Unchanged because of lr_scale 0.
    assert torch.equal(state["method"]["gain"], torch.full((16,), 3.0))
    learner = Learner(recipe, identities=8)
    learner.load_state_dict(state)
    assert learner.loss.state.steps == 4
    assert load_network(tmp_path / "run").loss.state.steps == 4
    export_run(tmp_path / "run", tmp_path / "m.onnx")
    outputs = load_embedder(tmp_path / "m.onnx")(np.zeros((2, 112, 112, 3), dtype=np.uint8))
    assert outputs.quality is not None
    np.testing.assert_allclose(outputs.quality, 3 * outputs.embedding[:, 0], rtol=1e-4)
