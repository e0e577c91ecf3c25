"""Pretrained weights of IResNets against an independent implementation of the published network."""

import pytest
import torch
from torch.nn import functional as F

from facerts.errors import ModelError
from facerts.nn import HeadSpec, build_network
from facerts.nn.arcface_torch import load_pretrained, recognize, state_dict
from tests.published import draw_published

BLOCKS = {"iresnet18": (2, 2, 2, 2), "iresnet50": (3, 4, 14, 3)}
CHANNELS = (16, 32, 64, 128)


def embed(weights, images):
    """The published network, implemented from the names of its weights without using the package."""

    def norm(x, name):
        mean, var = weights[f"{name}.running_mean"], weights[f"{name}.running_var"]
        shape = (1, -1, *[1] * (x.ndim - 2))
        unit = (x - mean.view(shape)) / (var.view(shape) + 1e-5).sqrt()
        return unit * weights[f"{name}.weight"].view(shape) + weights[f"{name}.bias"].view(shape)

    def prelu(x, name):
        return torch.where(x > 0, x, x * weights[f"{name}.weight"].view(1, -1, 1, 1))

    x = F.conv2d(images, weights["conv1.weight"], padding=1)
    x = prelu(norm(x, "bn1"), "prelu")
    for stage in (1, 2, 3, 4):
        block = 0
        while f"layer{stage}.{block}.conv1.weight" in weights:
            at, stride = f"layer{stage}.{block}", 2 if block == 0 else 1
            y = F.conv2d(norm(x, f"{at}.bn1"), weights[f"{at}.conv1.weight"], padding=1)
            y = prelu(norm(y, f"{at}.bn2"), f"{at}.prelu")
            y = norm(F.conv2d(y, weights[f"{at}.conv2.weight"], stride=stride, padding=1), f"{at}.bn3")
            if block == 0:
                x = norm(F.conv2d(x, weights[f"{at}.downsample.0.weight"], stride=2), f"{at}.downsample.1")
            x, block = x + y, block + 1
    x = norm(x, "bn2").reshape(len(x), -1)
    return norm(x @ weights["fc.weight"].T + weights["fc.bias"], "features")


@pytest.mark.parametrize("name", BLOCKS)
def test_the_embeddings_are_those_of_the_published_network(name):
    weights = draw_published(BLOCKS[name], CHANNELS, embedding_size=24)
    network = build_network(name, embedding_size=24, width=0.25).double().eval()
    load_pretrained(network, state_dict(weights, "backbone.pth"), "backbone.pth")
    images = torch.rand(2, 3, 112, 112, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 2 - 1
    with torch.no_grad():
        expected, actual = embed(weights, images), network(images)["embedding"]
    assert expected.std() > 0.1
    assert (expected[0] - expected[1]).abs().max() > 1e-3
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def test_every_weight_is_loaded_and_other_heads_do_not_change():
    weights = draw_published(BLOCKS["iresnet18"], CHANNELS, embedding_size=24)
    network = build_network("iresnet18", embedding_size=24, width=0.25, heads={"log_scale": HeadSpec(4, True)})
    before = {name: value.clone() for name, value in network.state_dict().items()}
    load_pretrained(network, state_dict(weights, "backbone.pth"), "backbone.pth")
    for name, value in network.state_dict().items():
        stays = name.startswith("heads.") or name.endswith("num_batches_tracked")
        # The last BatchNorm's scale is 1 in both.
        assert torch.equal(value, before[name]) == (stays or name == "embedding.1.weight"), name


@pytest.mark.parametrize("wrap", ["plain", "parallel", "state_dict", "without counters"])
def test_wrappers_and_prefixes_of_weights_are_removed(wrap):
    weights = draw_published(BLOCKS["iresnet18"], CHANNELS, embedding_size=24)
    saved = {
        "plain": weights,
        "parallel": {f"module.{name}": value for name, value in weights.items()},
        "state_dict": {"epoch": 3, "state_dict": {f"module.{n}": value for n, value in weights.items()}},
        "without counters": {n: value for n, value in weights.items() if not n.endswith("tracked")},
    }[wrap]
    network = build_network("iresnet18", embedding_size=24, width=0.25).double()
    load_pretrained(network, state_dict(saved, "backbone.pth"), "backbone.pth")
    assert torch.equal(network.embedding[0].weight, weights["fc.weight"])


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (
            {"backbone": "iresnet34"},
            r"missing: layer1\.2\.bn1\.bias, layer1\.2\.bn1\.running_mean, layer1\.2\.bn1\.running_var and \d+ more\. "
            r"The file looks like iresnet18 of width 0\.25 with embeddings of size 24",
        ),
        ({"embedding_size": 32}, r"wrong shape: fc\.weight \(24, 6272\), expected \(32, 6272\), fc\.bias"),
        ({"width": 0.5}, r"wrong shape: conv1\.weight \(16, 3, 3, 3\), expected \(32, 3, 3, 3\)"),
        ({"backbone": "iresnet18_se"}, r"missing: trunk\.1\.0\.residual\.6\.gate.*looks like iresnet18 of"),
        (
            {"backbone": "iresnet18_lite"},
            r"unexpected: layer1\.0\.downsample\.0\.weight.*looks like iresnet18 of",
        ),
        ({"backbone": "mobilefacenet"}, r"looks like iresnet18 of"),
    ],
)
def test_the_error_for_another_network_says_what_the_file_looks_like(own, message):
    weights = state_dict(draw_published(BLOCKS["iresnet18"], CHANNELS, embedding_size=24), "backbone.pth")
    shape = {"backbone": "iresnet18", "embedding_size": 24, "width": 0.25, **own}
    network = build_network(**shape)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(ModelError, match=r"^backbone\.pth: .*" + message):
        load_pretrained(network, weights, "backbone.pth")
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("saved", [{}, {"epoch": 1}, {"state_dict": {"epoch": 1}}, {0: torch.zeros(1)}], ids=repr)
def test_files_without_a_state_dict_are_refused(saved):
    with pytest.raises(ModelError, match=r"^backbone\.pth: neither a facerts checkpoint nor a state dict"):
        state_dict(saved, "backbone.pth")


def test_weights_of_another_architecture_are_not_recognized():
    assert recognize({"layer1.0.conv1.weight": torch.zeros(4, 4, 3, 3), "fc.weight": torch.zeros(2, 2)}) is None
    network = build_network("iresnet18", embedding_size=24, width=0.25)
    with pytest.raises(ModelError, match="looks like no IResNet of insightface's arcface_torch"):
        load_pretrained(network, {"stem.weight": torch.zeros(1)}, "backbone.pth")
