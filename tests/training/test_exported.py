"""Training from the weights of an exported file."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from facerts.embedding import load_embedder
from facerts.errors import ModelError
from facerts.evaluation.while_training import NetworkEmbedder, to_network_input
from facerts.hub.registry import find_shipped
from facerts.onnx.contract import store_description
from facerts.training.checkpoint import FILE, save_checkpoint
from facerts.training.export import describe, export_run
from facerts.training.init_weights import open_network
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData, sample
from facerts.training.loop import train

BACKBONES = {
    "iresnet18_lite": "{name: iresnet18_lite, width: 0.25, embedding_size: 16}",
    "iresnet18_se": "{name: iresnet18_se, width: 0.25, embedding_size: 16}",
    "compact": "{name: compact, width: 0.25, embedding_size: 16}",
    "mobilefacenet": "{name: mobilefacenet, width: 0.125, embedding_size: 16}",
}


def export_drawn(recipe, out, precision="fp32"):
    """Export a network with random weights and slopes, and BatchNorm statistics of the training images."""
    learner = Learner(recipe, 4)
    generator = torch.Generator().manual_seed(3)

    def draw(value, low, high):
        value.data.copy_(torch.rand(value.shape, generator=generator) * (high - low) + low)

    for module in learner.network.modules():
        if isinstance(module, _BatchNorm):
            module.momentum = 1.0
            draw(module.bias, -0.5, 0.5)
            if module.weight.requires_grad:
                draw(module.weight, 0.5, 1.5)
        elif isinstance(module, nn.PReLU):
            draw(module.weight, 0, 0.5)
    learner.network.train()(to_network_input(sample(TrainingData(recipe).source)))
    run = out.with_suffix("")
    run.mkdir()
    save_checkpoint(run / FILE, recipe, {"step": 0, "position": 0.0, **learner.state_dict()})
    export_run(run, out, precision=precision)
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backbone", "precision"), [*((backbone, "fp32") for backbone in BACKBONES), ("iresnet18_lite", "fp16")]
)
def test_a_network_computes_what_its_exported_file_does(make_recipe, tmp_path, crops, backbone, precision):
    own = f"backbone={BACKBONES[backbone]}"
    file = export_drawn(make_recipe(own), tmp_path / "drawn.onnx", precision)
    recipe = make_recipe(own, f"backbone.weights={file}", "backbone.frozen=true", "seed=9")
    learner = Learner(recipe, 4, source=TrainingData(recipe).source)
    found, expected = NetworkEmbedder(learner.network, learner.loss.score)(crops), load_embedder(file)(crops)
    for value, wanted in ((found.embedding, expected.embedding), (found.norm, expected.norm)):
        assert value is not None
        assert wanted is not None
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-5)
    assert found.quality is not None
    assert expected.quality is not None
    np.testing.assert_allclose(found.quality, expected.quality, atol=1e-5)


def test_a_network_to_be_trained_has_the_statistics_of_the_training_images(make_recipe, exported, crops):
    recipe = make_recipe(f"backbone={BACKBONES['mobilefacenet']}", f"backbone.weights={exported}")
    data = TrainingData(recipe)
    learner = Learner(recipe, data.identities, source=data.source)
    found = NetworkEmbedder(learner.network, learner.loss.score)(crops)
    np.testing.assert_allclose(found.embedding, load_embedder(exported)(crops).embedding, atol=1e-5)

    images = to_network_input(sample(data.source))
    outputs = {True: learner.network.train()(images), False: learner.network.eval()(images)}
    # In training mode each BatchNorm normalizes by the batch, here the one that its statistics come from.
    cosines = torch.cosine_similarity(outputs[True]["embedding"], outputs[False]["embedding"])
    assert cosines.min() > 0.99


def test_the_heads_of_a_frozen_network_have_the_statistics_of_the_training_images(make_recipe, exported):
    recipe = make_recipe(
        f"backbone={BACKBONES['mobilefacenet']}", f"backbone.weights={exported}", "backbone.frozen=true"
    )
    data = TrainingData(recipe)
    network = Learner(recipe, data.identities, source=data.source).network.eval()
    images = to_network_input(sample(data.source))
    expected = network(images)["log_scale"]
    network.heads.train()
    torch.testing.assert_close(network(images)["log_scale"], expected, atol=1e-4, rtol=1e-4)


def test_a_frozen_run_on_a_model_that_ships_keeps_its_embeddings(make_recipe, tmp_path, crops):
    recipe = make_recipe(
        "backbone={name: compact_small, embedding_size: 128, weights: facerts-small, frozen: true}",
        "optim.epochs=0.5",
        "optim.milestones=[]",
    )
    train(recipe, tmp_path / "run")
    ready, shipped = open_network(tmp_path / "run"), load_embedder(find_shipped("facerts-small"))(crops)
    found = NetworkEmbedder(ready.network, ready.loss.score)(crops)
    np.testing.assert_allclose(found.embedding, shipped.embedding, atol=1e-5)
    assert found.quality is not None
    assert shipped.quality is not None
    assert np.abs(found.quality - shipped.quality).max() > 1e-4


def test_what_the_initial_weights_were_trained_on_stays_with_the_model(make_recipe, exported, tmp_path):
    own = (f"backbone={BACKBONES['mobilefacenet']}", "optim.epochs=0.25", "optim.milestones=[]")
    recipe = make_recipe(*own, f"backbone.weights={exported}", "data.name=ours", "data.terms=free")
    train(recipe, tmp_path / "first")
    again = make_recipe(*own, f"backbone.weights={tmp_path / 'first'}", "data.name=theirs", "data.terms=free")
    train(again, tmp_path / "second")
    train(again, tmp_path / "second", resume=True)
    said = [describe(open_network(tmp_path / run), ["embedding"], name="m") for run in ("first", "second")]
    assert [description.training_data for description in said] == [
        "ours; initial weights: drawn",
        "theirs; initial weights: ours; initial weights: drawn",
    ]
    assert [description.terms for description in said] == ["free; initial weights: none"] * 2


def test_the_error_for_another_network_names_that_of_the_file(make_recipe, exported):
    for backbone in ("{name: mobilefacenet, width: 0.5, embedding_size: 16}", BACKBONES["iresnet18_lite"]):
        with pytest.raises(
            ModelError,
            match=r"short\.onnx: .*the file's is mobilefacenet width 0\.125, with embeddings of size 16",
        ):
            Learner(make_recipe(f"backbone={backbone}", f"backbone.weights={exported}"), 4)


def test_a_file_in_8_bits_is_refused(make_recipe, exported, tmp_path):
    description = load_embedder(exported).description.model_copy(update={"precision": "int8"})
    file = store_description(exported, description, tmp_path / "eight.onnx")
    with pytest.raises(ModelError, match=r"eight\.onnx: .* 8 bits"):
        Learner(make_recipe(f"backbone={BACKBONES['mobilefacenet']}", f"backbone.weights={file}"), 4)


@pytest.mark.parametrize("kind", [999, TensorProto.INT4, TensorProto.BFLOAT16])
def test_weights_of_another_type_are_refused(make_recipe, exported, tmp_path, kind):
    model = onnx.load(str(exported))
    for tensor in model.graph.initializer:
        tensor.data_type = kind
    (tmp_path / "typed.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"typed\.onnx: weight 'network\..* is not in 32 or 16 bits"):
        Learner(make_recipe(f"backbone.weights={tmp_path / 'typed.onnx'}"), 4)


def test_empty_weights_of_a_huge_shape_take_no_memory(make_recipe, exported, tmp_path):
    model = onnx.load(str(exported))
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Conv":
            del node.input[2:]
            weights[node.input[1]].raw_data = b""
            weights[node.input[1]].dims[:] = [1 << 50, 0, 3, 3]
    (tmp_path / "huge.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"huge\.onnx: the weights do not fit"):
        Learner(make_recipe(f"backbone.weights={tmp_path / 'huge.onnx'}"), 4)


def test_a_missing_or_broken_file_is_named(make_recipe, tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"\xff\xff\xff\xff")
    for name in ("missing.onnx", "broken.onnx"):
        with pytest.raises(ModelError, match=name):
            Learner(
                make_recipe(f"backbone={BACKBONES['mobilefacenet']}", f"backbone.weights={tmp_path / name}"),
                4,
            )
