"""Runs initialized from published weights or from a first stage."""

import json

import numpy as np
import pytest
import torch

from facerts.embedding import load_embedder
from facerts.errors import ModelError
from facerts.evaluation.while_training import NetworkEmbedder
from facerts.io.files import sha256_file
from facerts.losses.collectives import Processes
from facerts.losses.partial_fc import PartialFC
from facerts.training.checkpoint import FILE, load_checkpoint
from facerts.training.export import export_run
from facerts.training.init_weights import init_weights, open_network
from facerts.training.learner import Learner
from facerts.training.loop import train
from tests.command import refused, run
from tests.published import draw_published
from tests.training.test_learner import batch

IRESNET = ("backbone={name: iresnet18, width: 0.25, embedding_size: 16}",)
SHORT = ("optim.epochs=1", "optim.milestones=[]")
TERMS = "non-commercial research only"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A file of random weights in the published format: IResNet-18 at a quarter of its width."""
    path = tmp_path_factory.mktemp("published") / "backbone.pth"
    weights = draw_published((2, 2, 2, 2), (16, 32, 64, 128), embedding_size=16, dtype=torch.float32)
    torch.save(weights, path)
    return path


def snapshot(learner):
    """Copies of all weights and statistics of a learner."""
    parts = {**learner.network.state_dict(), "centers": learner.centers.weight}
    return {name: value.detach().clone() for name, value in parts.items()}


def steps(learner, count):
    for step in range(count):
        learner.step(batch(), step, 0.02)


@pytest.mark.parametrize("frozen", ["backbone.frozen=true", "method.name=pfe", ""])
def test_a_run_starts_from_published_weights_which_stay_unchanged_if_frozen(make_recipe, published, frozen):
    learner = Learner(make_recipe(*IRESNET, *filter(None, [frozen]), f"backbone.weights={published}"), 4)
    before = snapshot(learner)
    expected = open_network(published).network.state_dict()
    torch.testing.assert_close({name: before[name] for name in expected}, dict(expected), rtol=0, atol=0)
    steps(learner, 2)
    moved = {name for name, value in snapshot(learner).items() if not torch.equal(value, before[name])}
    of_the_heads = {name for name in before if name.startswith("heads.")}
    if "pfe" not in frozen:  # which uses no class centers
        of_the_heads |= {"centers"}
    kept = {"embedding.1.weight"}  # its scale of 1 is fixed
    assert moved == of_the_heads if frozen else moved == before.keys() - kept


@pytest.fixture(scope="module")
def first_stage(tmp_path_factory, make_recipe):
    """A short run with heads, class centers and a moving average of the weights."""
    recipe = make_recipe("optim.epochs=0.5", "optim.milestones=[]", "optim.average=0.9", "seed=0")
    return train(recipe, tmp_path_factory.mktemp("first") / "run").parent


def test_a_second_stage_starts_from_the_exported_weights_of_the_first(make_recipe, first_stage):
    _, state = load_checkpoint(first_stage / FILE)
    assert not torch.equal(state["average"]["trunk.0.0.weight"], state["network"]["trunk.0.0.weight"])
    learner = Learner(make_recipe(f"backbone.weights={first_stage}"), identities=8)
    torch.testing.assert_close(learner.network.state_dict(), state["average"], rtol=0, atol=0)
    assert torch.equal(learner.centers.weight, state["centers"]["weight"])


@pytest.mark.parametrize("other", ["method.degrees=8", "method.name=relaxed_softmax"])
def test_heads_that_do_not_fit_are_initialized_randomly(make_recipe, first_stage, other):
    recipe = make_recipe(f"backbone.weights={first_stage}", other)
    _, state = load_checkpoint(first_stage / FILE)
    learner, fresh = Learner(recipe, 8), Learner(make_recipe(other), 8)
    for name, value in learner.network.state_dict().items():
        expected = fresh.network.state_dict() if name.startswith("heads.") else state["average"]
        assert torch.equal(value, expected[name]), name


def test_each_process_takes_its_own_centers(make_recipe, first_stage):
    learner = Learner(make_recipe(), identities=8)
    _, state = load_checkpoint(first_stage / FILE)
    parts = [PartialFC(8, 16, processes=Processes(rank, 3)) for rank in range(3)]
    for centers in parts:
        init_weights(first_stage, learner.network, learner.loss, centers)
    assert torch.equal(torch.cat([centers.weight for centers in parts]), state["centers"]["weight"])


def test_the_state_of_a_method_is_loaded_by_the_same_method(make_recipe, tmp_path):
    train(make_recipe("method.name=adaface", *SHORT), tmp_path / "run")
    _, state = load_checkpoint(tmp_path / "run" / FILE)
    recipe = make_recipe("method.name=adaface", f"backbone.weights={tmp_path / 'run'}")
    taken = Learner(recipe, identities=8).loss.state.state_dict()
    torch.testing.assert_close(taken, state["method"], rtol=0, atol=0)
    assert not torch.equal(taken["mean"], Learner(make_recipe("method.name=adaface"), 8).loss.state.mean)


@pytest.mark.slow
def test_published_weights_are_exported_with_a_description(published, tmp_path, crops, capsys):
    out = tmp_path / "m.onnx"
    assert run("export", published, "--out", out, "--terms", TERMS, "--json") == 0
    assert json.loads(capsys.readouterr().out)["smallest_cosine"] > 0.99999
    description = load_embedder(out).description
    assert (description.method, description.backbone, description.embedding_size) == (
        "arcface",
        "iresnet18 width 0.25",
        16,
    )
    assert (description.terms, description.training_data, description.recipe_sha256) == (TERMS, "", "")
    assert description.source == f"backbone.pth, SHA-256 {sha256_file(published)}"
    scored, ready = load_embedder(out)(crops), open_network(published)
    expected = NetworkEmbedder(ready.network, ready.loss.score)(crops)
    np.testing.assert_allclose(scored.embedding, expected.embedding, atol=1e-5)
    np.testing.assert_allclose(scored.quality, expected.norm, rtol=1e-4)


def test_published_weights_without_terms_are_not_exported(published, tmp_path, capsys):
    assert "without terms of use; give terms" in refused(capsys, "export", published, "--out", tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_weights_of_another_architecture_are_not_exported(tmp_path):
    torch.save({"stem.weight": torch.zeros(2)}, tmp_path / "vit.pth")
    with pytest.raises(ModelError, match=r"vit\.pth: neither .* nor an IResNet .* is stem\.weight"):
        export_run(tmp_path / "vit.pth", tmp_path / "m.onnx", terms=TERMS)
