"""What a method may require of the loop: several views, batches by identity, a state."""

import numpy as np
import pytest
import torch

from facerts.embedding import load_embedder
from facerts.training.checkpoint import FILE, load_checkpoint, load_network
from facerts.training.export import export_run
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from facerts.training.loop import train


def test_a_method_gets_two_views_of_several_images_of_each_person(make_recipe):
    recipe = make_recipe("method.name=supcon", "data.per_identity=4", "data.augmentation={shift: 0.1, rotation: 8}")
    crops, labels, samples, *_ = next(TrainingData(recipe).batches(0, 1))
    assert crops.shape == (32, 112, 112, 3)
    assert labels[:16].tolist() == labels[16:].tolist()
    assert samples[:16].tolist() == samples[16:].tolist()
    runs = labels[:16].reshape(4, 4)
    assert (runs == runs[:, :1]).all()
    different = [(a.float() - b.float()).abs().mean().item() for a, b in zip(crops[:16], crops[16:], strict=True)]
    assert min(different) > 0.5
    # The first view is the one that a method with a single view gets.
    one_view = make_recipe("method.name=arcface", "data.augmentation={shift: 0.1, rotation: 8}", "optim.batch_size=64")
    all_crops, _, all_samples, *_ = next(TrainingData(one_view).batches(0, 1))
    position = all_samples.tolist().index(int(samples[0]))
    assert torch.equal(all_crops[position], crops[0])


@pytest.mark.slow
def test_a_methods_state_is_saved_resumed_and_exported(make_recipe, tmp_path):
    recipe = make_recipe("method={name: tempnet, rho: 1}", "optim.epochs=1", "optim.milestones=[]")
    train(recipe, tmp_path / "run")
    _, state = load_checkpoint(tmp_path / "run" / FILE)
    learner = Learner(recipe, identities=8)
    assert not torch.equal(learner.loss.state.references, state["method"]["references"])
    learner.load_state_dict(state)
    for loss in (learner.loss, load_network(tmp_path / "run").loss):
        torch.testing.assert_close(loss.state.state_dict(), state["method"], rtol=0, atol=0)
    export_run(tmp_path / "run", tmp_path / "m.onnx")
    outputs = load_embedder(tmp_path / "m.onnx")(np.zeros((2, 112, 112, 3), dtype=np.uint8))
    with torch.no_grad():
        tau = learner.loss.state(torch.from_numpy(outputs.embedding))
    np.testing.assert_allclose(outputs.quality, -tau, rtol=1e-4)
