import itertools

import pytest
import torch
from torch import nn

from facerts.nn import BACKBONES, HeadSpec, build_network
from facerts.nn.exported import for_inference
from facerts.nn.flops import count_multiply_adds, count_parameters


# Multiply-adds in G as published by model zoos, and parameters in M of reference implementations.
@pytest.mark.parametrize(
    ("name", "embedding_size", "multiply_adds", "parameters"),
    [
        ("iresnet18", 512, 2.6, 24.0),
        ("iresnet34", 512, 4.5, 34.1),
        ("iresnet50", 512, 6.3, 43.6),
        ("iresnet100", 512, 12.1, 65.2),
        pytest.param("iresnet200", 512, 23.5, 118.8, marks=pytest.mark.slow),
        ("mobilefacenet_wide", 512, 0.45, 2.1),
    ],
)
def test_parameters_and_multiply_adds_are_the_published_ones(name, embedding_size, multiply_adds, parameters):
    network = build_network(name, embedding_size=embedding_size)
    assert count_multiply_adds(network) / 1e9 == pytest.approx(multiply_adds, rel=0.03)
    assert count_parameters(network) / 1e6 == pytest.approx(parameters, rel=0.03)


def test_mobilefacenet_has_the_cost_in_its_paper():
    # The paper: 0.99 M parameters and 221 M multiply-adds.
    network = build_network("mobilefacenet", embedding_size=128)
    assert count_parameters(network) / 1e6 == pytest.approx(0.99, rel=0.02)
    assert count_multiply_adds(network) / 1e6 == pytest.approx(221, rel=0.001)


def test_multiply_adds_of_a_layer_worked_out_by_hand():
    layer = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.PReLU(8))
    assert count_multiply_adds(layer) == 56 * 56 * 8 * 27


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKBONES)
def test_every_trunk_has_its_number_of_features(name):
    with torch.device("meta"):
        trunk = BACKBONES[name](width=0.25)
        assert trunk(torch.empty(2, 3, 112, 112)).shape == (2, trunk.features)


def test_lite_moves_the_first_stride_into_the_stem_and_nothing_else():
    plain, lite = (BACKBONES[name](width=0.25) for name in ("iresnet18", "iresnet18_lite"))
    sizes = {"plain": [], "lite": []}
    for name, trunk in (("plain", plain), ("lite", lite)):
        image = torch.randn(2, 3, 112, 112)
        for layer in list(trunk)[:5]:
            image = layer(image)
            sizes[name].append((image.shape[1], image.shape[2]))
    assert sizes["plain"] == [(16, 112), (16, 56), (32, 28), (64, 14), (128, 7)]
    assert sizes["lite"] == [(16, 56), *sizes["plain"][1:]]
    shapes = [{name: value.shape for name, value in trunk.state_dict().items()} for trunk in (plain, lite)]
    # The first block needs no shortcut if it keeps the size.
    left = set(shapes[0]) - set(shapes[1])
    assert left
    assert all(name.startswith("1.0.shortcut") for name in left)
    assert shapes[1].items() <= shapes[0].items()


def test_both_heads_read_the_same_features_and_stay_in_float32_under_autocast():
    network = build_network("mobilefacenet", embedding_size=8, heads={"log_scale": HeadSpec(4)}, width=0.125).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = network(torch.randn(2, 3, 112, 112))
    assert all(value.dtype == torch.float32 for value in outputs.values())
    features = torch.randn(2, network.trunk.features)
    assert network.heads["log_scale"](features).shape == (2, 4)


def test_gradients_reach_every_parameter():
    network = build_network(
        "iresnet18_se", embedding_size=8, heads={"log_scale": HeadSpec(4, batch_norm=True)}, width=0.25
    )
    sum(value.square().sum() for value in network(torch.randn(3, 3, 112, 112)).values()).backward()
    silent = [name for name, p in network.named_parameters() if p.requires_grad and p.grad is None]
    assert silent == []


def test_prelu_becomes_a_maximum_unless_a_slope_is_above_1():
    layers = torch.nn.Sequential(*(torch.nn.PReLU(5) for _ in range(3))).double()
    with torch.no_grad():
        layers[0].weight.copy_(torch.tensor([-1.5, -0.3, 0.0, 0.9, 1.0]))
        layers[1].weight.copy_(torch.tensor([-0.5, 0.0, 0.1, 0.2, 1.1]))
    faster = for_inference(layers)
    assert [type(layer).__name__ for layer in faster] == ["MaxPReLU", "PReLU", "MaxPReLU"]
    x = torch.randn(4, 5, 6, 7, dtype=torch.float64)
    for slow, fast in zip(layers, faster, strict=True):
        assert torch.equal(fast(x), slow(x))


def test_compact_can_be_folded_completely():
    """Every BatchNorm directly follows a convolution, and every activation is a ReLU."""
    layers = [m for m in BACKBONES["compact"](width=1.0).modules() if not list(m.children())]
    for before, layer in itertools.pairwise(layers):
        if isinstance(layer, torch.nn.BatchNorm2d):
            assert isinstance(before, torch.nn.Conv2d)
    assert not any(isinstance(layer, torch.nn.PReLU | torch.nn.Sigmoid) for layer in layers)
