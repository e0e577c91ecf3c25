"""Torchvision's classifiers as trunks, with a stand-in for torchvision, whose wheels need another build of PyTorch."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from facerts.embedding.onnx_embedder import load_embedder
from facerts.errors import Error, MissingExtraError
from facerts.nn import HeadSpec, build_network
from facerts.training.export import export_run
from facerts.training.loop import train


class Pooled(nn.Module):
    """As ResNets are: a linear layer on pooled features."""

    def __init__(self, channels):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 8, 8)
        self.fc = nn.Linear(channels, 1000)

    def forward(self, images):
        return self.fc(self.stem(images).mean(dim=(2, 3)))


class Sequence(nn.Module):
    """As ConvNeXt is: its classifier flattens."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 16, 16)
        self.classifier = nn.Sequential(nn.Flatten(1), nn.Linear(24, 1000))

    def forward(self, images):
        return self.classifier(F.adaptive_avg_pool2d(self.stem(images), 1))


class OneSize(Pooled):
    def forward(self, images):
        torch._assert(images.shape[-1] == 224, "Wrong image height! Expected 224")
        return super().forward(images)


class Headless(nn.Module):
    pass


NETWORKS = {
    "pooled16": lambda: Pooled(16), "pooled32": lambda: Pooled(32), "sequence": Sequence,
    "one_size": lambda: OneSize(8), "headless": Headless,
}  # fmt: skip


@pytest.fixture
def torchvision(monkeypatch):
    package, models = ModuleType("torchvision"), ModuleType("torchvision.models")

    def get_model(name, weights):
        assert weights is None
        return NETWORKS[name]()

    models.list_models = lambda module: list(NETWORKS)
    models.get_model = get_model
    package.models = models
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.models", models)


@pytest.mark.parametrize(("name", "features"), [("pooled16", 16), ("pooled32", 32), ("sequence", 24)])
@pytest.mark.usefixtures("torchvision")
def test_the_features_are_what_the_classifier_got(name, features):
    network = build_network(f"torchvision/{name}", embedding_size=8, heads={"score": HeadSpec(1)}).eval()
    assert network.training is False
    images = torch.randn(3, 3, 112, 112)
    plain = network.trunk.network
    expected = plain.stem(images).mean(dim=(2, 3))
    assert expected.shape == (3, features)
    torch.testing.assert_close(network.trunk(images), expected)
    assert network(images)["embedding"].shape == (3, 8)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("pooled17", {}, "no network 'pooled17', did you mean 'pooled16'"),
        ("pooled16", {"width": 0.5}, "has a width of its own"),
        ("one_size", {}, "does not classify images of 112 x 112 pixels"),
        ("headless", {}, "no classifier of a kind known here"),
    ],
)
@pytest.mark.usefixtures("torchvision")
def test_networks_that_cannot_be_trunks_are_refused(name, options, sentence):
    with pytest.raises(Error, match=sentence):
        build_network(f"torchvision/{name}", **options)


@pytest.mark.usefixtures("torchvision")
def test_larger_inputs_than_the_crops():
    network = build_network("torchvision/one_size", embedding_size=4, input_size=224)
    assert network(torch.randn(2, 3, 112, 112))["embedding"].shape == (2, 4)


def test_torchvision_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(MissingExtraError, match="pip install torch torchvision"):
        build_network("torchvision/resnet18")


@pytest.mark.usefixtures("torchvision")
def test_a_recognizer_is_trained_and_exported(make_recipe, tmp_path):
    recipe = make_recipe("backbone={name: torchvision/pooled16, embedding_size: 8, input_size: 64}")
    run = train(recipe, tmp_path / "run")
    assert run.exists()
    parity = export_run(tmp_path / "run", tmp_path / "model.onnx").parity
    assert parity.cosine is not None
    assert parity.cosine > 0.9999
    assert load_embedder(tmp_path / "model.onnx").description.input.size == (112, 112)


@pytest.mark.parametrize("name", ["iresnet18", "iresnet18_lite", "compact", "mobilefacenet", "patch8"])
@pytest.mark.parametrize("size", [40, 64, 112, 120])
def test_networks_read_crops_of_any_size(name, size):
    network = build_network(name, embedding_size=8, width=0.25, input_size=size).eval()
    if name.startswith("patch"):
        # Their weights do not depend on the size.
        network.load_state_dict(build_network(name, embedding_size=8, width=0.25).state_dict())
    images = torch.randn(2, 3, 112, 112)
    resized = F.interpolate(images, (size, size), mode="bilinear", align_corners=False)
    expected = network.embedding(network.trunk(images if size == 112 else resized))
    torch.testing.assert_close(network(images)["embedding"], expected)
