"""Class centers updated in the backward pass: the weights and momenta of an ordinary step, without a full gradient."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from facerts.losses import LOSSES, ClassificationLoss
from facerts.losses.partial_fc import RowUpdates
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from tests.losses.test_partial_fc import differentiate, stepping

CLASSIFY = sorted(name for name, method in LOSSES.items() if issubclass(method, ClassificationLoss))


def sgd(weight, momentum=0.9):
    return torch.optim.SGD([weight], lr=0.3, momentum=momentum, weight_decay=0.01)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    "parts", [[slice(0, 4), slice(4, 8), slice(8, 10)], [torch.tensor([7, 2, 3])]], ids=["slices", "some"]
)
def test_updates_equal_an_ordinary_step_and_leave_all_other_rows(parts, momentum):
    before = torch.randn(10, 3, dtype=torch.double)
    expected, weight = nn.Parameter(before.clone()), nn.Parameter(before.clone())
    ordinary, by_rows = sgd(expected, momentum), sgd(weight, momentum)
    update = RowUpdates(by_rows, weight)
    for _ in range(3):
        gradient = torch.randn(10, 3, dtype=torch.double)
        expected.grad = gradient
        ordinary.step()
        for rows in parts:
            update(rows, gradient[rows])
        # Does nothing, because there is no gradient.
        by_rows.step()
    updated = torch.zeros(10, dtype=torch.bool)
    for rows in parts:
        updated[rows] = True
    torch.testing.assert_close(weight[updated], expected[updated], rtol=1e-14, atol=1e-14)
    assert torch.equal(weight[~updated], before[~updated])
    if momentum:
        buffers = [each.state_dict()["state"][0]["momentum_buffer"][updated] for each in (by_rows, ordinary)]
        torch.testing.assert_close(*buffers)


def test_autograd_detects_updated_rows():
    weight = nn.Parameter(torch.randn(4, 3))
    update = RowUpdates(sgd(weight), weight)
    squares = weight.square().sum()
    update(slice(0, 2), torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.backward()


def learn(recipe, steps=3):
    data = TrainingData(recipe)
    learner = Learner(recipe, data.identities)
    for step, batch in enumerate(data.batches(0, steps)):
        learner.step(batch, step, 0.05, 0.8)
    return learner


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "rts" else pytest.mark.slow) for name in CLASSIFY]
)
def test_row_updates_train_every_classification_method_like_ordinary_steps(make_recipe, name, monkeypatch):
    recipe = make_recipe(f"method={{name: {name}}}", "compute.class_chunk=3")
    by_rows = learn(recipe)
    monkeypatch.setattr(Learner, "_can_update_rows", lambda self: False)
    ordinary = learn(recipe)
    assert by_rows.centers.weight.grad is None
    assert ordinary.centers.weight.grad is not None
    actual, expected = by_rows.state_dict(), ordinary.state_dict()
    torch.testing.assert_close(actual["centers"], expected["centers"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(actual["network"], expected["network"], rtol=1e-4, atol=1e-5)
    states = [state["optimizer"]["state"] for state in (actual, expected)]
    assert states[0].keys() == states[1].keys()
    shape = by_rows.centers.weight.shape
    momenta = [
        [entry["momentum_buffer"] for entry in state.values() if entry["momentum_buffer"].shape == shape]
        for state in states
    ]
    assert momenta[0][0].abs().max() > 1e-4
    torch.testing.assert_close(*momenta, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "override",
    ["optim.algorithm=adamw", "compute.accumulate=2", "compute.precision=fp16", "method={name: supcon}"],
)
def test_settings_that_need_the_full_gradient_disable_row_updates(make_recipe, override):
    overrides = [override, "data.per_identity=2"] if "supcon" in override else [override]
    assert Learner(make_recipe(*overrides), 24).centers.row_updates is None


def test_no_gradient_as_large_as_the_centers_is_allocated():
    centers, _ = stepping(4000)
    sizes = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            out = function(*arguments, **(options or {}))
            made = out if isinstance(out, tuple) else (out,)
            sizes.extend(
                value.untyped_storage().nbytes() // value.element_size()
                for value in made
                if isinstance(value, Tensor)
                and value.untyped_storage().data_ptr() != centers.weight.untyped_storage().data_ptr()
            )
            return out

    with Watch():
        differentiate(centers)
    # Only views of the momentum buffer are that large.
    assert sorted(set(sizes))[-1] == 4000 * 8
    assert sorted(set(sizes))[-2] <= 16 * 100
