"""Recomputed activations: the same gradients and state as with stored ones, in less memory."""

import copy

import pytest
import torch

from facerts.nn import build_network, recompute_activations
from facerts.nn.residual_block import ResidualBlock

NAMES = ["iresnet18_lite", "iresnet18_se", "mobilefacenet"]


def two(name, dropout=0.0):
    """The same network twice; the second one recomputes its activations."""
    torch.manual_seed(0)
    kept = build_network(name, embedding_size=8, width=0.25, dropout=dropout).double().train()
    again = copy.deepcopy(kept)
    recompute_activations(again)
    return kept, again


def differentiate(network):
    random = torch.Generator().manual_seed(1)
    torch.manual_seed(2)
    faces = torch.randn(4, 3, 112, 112, dtype=torch.double, generator=random)
    network(faces)["embedding"].square().sum().backward()
    return {name: weight.grad for name, weight in network.named_parameters() if weight.grad is not None}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_gradients_and_statistics_are_those_of_activations_that_are_kept(name):
    kept, again = two(name, dropout=0.3)
    before = {name: value.clone() for name, value in kept.state_dict().items()}
    expected, found = differentiate(kept), differentiate(again)
    assert expected.keys() == found.keys()
    for weight, gradient in expected.items():
        torch.testing.assert_close(found[weight], gradient, rtol=1e-12, atol=1e-12, msg=weight)
    moved = 0
    for entry, value in kept.state_dict().items():
        assert torch.equal(again.state_dict()[entry], value), entry
        moved += "running" in entry and not torch.equal(before[entry], value)
    # Statistics that were never updated would be equal too.
    assert moved > 20


@pytest.mark.parametrize("name", NAMES)
def test_less_is_stored_for_the_backward_pass(name):
    sizes = []
    for network in two(name):
        kept = {}

        def note(tensor, kept=kept):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            network(torch.randn(2, 3, 112, 112, dtype=torch.double))
        weights = {weight.untyped_storage().data_ptr() for weight in network.parameters()}
        sizes.append(sum(size for place, size in kept.items() if place not in weights))
    assert sizes[1] < 0.6 * sizes[0]


def test_the_statistics_are_restored_if_the_recomputation_fails():
    _, again = two("iresnet18_lite")
    block = next(module for module in again.modules() if isinstance(module, ResidualBlock))
    own = dict(block.named_buffers())

    def fail():
        assert not any(value is own[name] for name, value in block.named_buffers())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), block._contexts()[1]:
        fail()
    assert all(value is own[name] for name, value in block.named_buffers())
