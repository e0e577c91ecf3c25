"""Class centers updated in the backward pass: the weights and momenta of an ordinary step, without a full gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from facerts.errors import Error
from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.class_head.row_updates import RowUpdates
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from facerts.training.methods import METHODS, Batch, ClassificationMethod
from facerts.training.recipe import Recipe

CLASSIFY = sorted(name for name, method in METHODS.items() if issubclass(method, ClassificationMethod))
# Clips nothing, but needs the full gradient.
DENSE = "optim.clip_norm=1e30"


def sgd(weight: Tensor, momentum: float = 0.9) -> torch.optim.SGD:
    return torch.optim.SGD([weight], lr=0.3, momentum=momentum, weight_decay=0.01)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_updates_of_all_rows_in_slices_equal_an_ordinary_step(momentum: float) -> None:
    expected = nn.Parameter(torch.randn(10, 3, dtype=torch.double))
    found = nn.Parameter(expected.detach().clone())
    ordinary, by_rows = sgd(expected, momentum), sgd(found, momentum)
    steps = RowUpdates(by_rows, found)
    for _ in range(3):
        gradient = torch.randn(10, 3, dtype=torch.double)
        expected.grad = gradient
        ordinary.step()
        for rows in (slice(0, 4), slice(4, 8), slice(8, 10)):
            steps(rows, gradient[rows])
        # Does nothing, because there is no gradient.
        by_rows.step()
        torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)
    if momentum:
        torch.testing.assert_close(
            by_rows.state_dict()["state"][0]["momentum_buffer"],
            ordinary.state_dict()["state"][0]["momentum_buffer"],
        )


def test_only_the_given_rows_are_updated() -> None:
    weight = nn.Parameter(torch.randn(10, 3, dtype=torch.double))
    before = weight.detach().clone()
    steps = RowUpdates(sgd(weight), weight)
    picked, gradient = torch.tensor([7, 2, 3]), torch.randn(3, 3, dtype=torch.double)
    expected = nn.Parameter(before[picked].clone())
    ordinary = sgd(expected)
    for _ in range(2):
        steps(picked, gradient)
        expected.grad = gradient
        ordinary.step()
    torch.testing.assert_close(weight[picked], expected, rtol=1e-14, atol=1e-14)
    rest = [row for row in range(10) if row not in picked.tolist()]
    assert torch.equal(weight[rest], before[rest])


def learn(recipe: Recipe, steps: int = 3) -> Learner:
    data = TrainingData(recipe)
    learner = Learner(recipe, data.identities)
    for step, (crops, labels, samples) in enumerate(data.batches(0, steps)):
        learner.step(crops, Batch(labels, samples, step, recipe.seed, 0.8), 0.05)
    return learner


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFY)
def test_row_updates_train_every_classification_method_like_ordinary_steps(
    make_recipe: Callable[..., Recipe], name: str
) -> None:
    overrides = (f"method={{name: {name}}}", "compute.class_chunk=3")
    found, expected = learn(make_recipe(*overrides)), learn(make_recipe(*overrides, DENSE))
    assert found.centers.weight.grad is None
    assert expected.centers.weight.grad is not None
    mine, theirs = found.state_dict(), expected.state_dict()
    torch.testing.assert_close(mine["centers"], theirs["centers"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(mine["network"], theirs["network"], rtol=1e-4, atol=1e-5)
    assert mine["optimizer"]["state"].keys() == theirs["optimizer"]["state"].keys()
    shape = found.centers.weight.shape
    (one,), (other,) = (
        [
            entry["momentum_buffer"]
            for entry in state["optimizer"]["state"].values()
            if entry["momentum_buffer"].shape == shape
        ]
        for state in (mine, theirs)
    )
    assert one.abs().max() > 1e-4
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "override",
    [
        DENSE,
        "optim.algorithm=adamw",
        "compute.accumulate=2",
        "compute.precision=fp16",
        "method={name: supcon}",
    ],
)
def test_settings_that_need_the_full_gradient_disable_row_updates(
    make_recipe: Callable[..., Recipe], override: str
) -> None:
    overrides = [override, "data.per_identity=2"] if "supcon" in override else [override]
    assert Learner(make_recipe(*overrides), 24).centers.row_updates is None


def stepping(identities: int, sample: float | None = None) -> tuple[ClassCenters, torch.optim.SGD]:
    centers = ClassCenters(identities, 8, chunk=100, sample=sample).double()
    optimizer = sgd(centers.weight)
    centers.row_updates = RowUpdates(optimizer, centers.weight)
    return centers, optimizer


def differentiate(centers: ClassCenters) -> Tensor:
    torch.manual_seed(3)
    embedding = torch.randn(16, 8, dtype=torch.double, requires_grad=True)
    scale = torch.tensor(9.0, dtype=torch.double)
    centers(embedding, torch.arange(16), lambda cosine: cosine - 0.1, scale).mean().backward()
    assert embedding.grad is not None
    return embedding.grad


def test_centers_updated_in_the_backward_pass_are_used_once_per_step() -> None:
    centers, _ = stepping(40)
    differentiate(centers)
    for again in (lambda: differentiate(centers), lambda: centers.cosines(torch.ones(2, 8))):
        with pytest.raises(Error, match=r"twice in a step.* optim\.clip_norm"):
            again()
    with torch.no_grad():
        centers.cosines(torch.ones(2, 8, dtype=torch.double))
    centers.begin(1)
    differentiate(centers)


def test_autograd_detects_updated_rows() -> None:
    weight = nn.Parameter(torch.randn(4, 3))
    steps = RowUpdates(sgd(weight), weight)
    squares = weight.square().sum()
    steps(slice(0, 2), torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.backward()  # type: ignore[no-untyped-call]


def test_every_sample_of_centers_has_another_class_than_the_images_own() -> None:
    centers = ClassCenters(8, 8, sample=0.01)
    loss = centers(
        torch.randn(3, 8, requires_grad=True),
        torch.tensor([5, 5, 5]),
        lambda cosine: cosine,
        torch.tensor(9.0),
    )
    loss.sum().backward()
    assert centers.weight.grad is not None
    assert centers.weight.grad.isfinite().all()
    assert int(centers.weight.grad.any(dim=1).sum()) == 2


def test_no_gradient_as_large_as_the_centers_is_allocated() -> None:
    centers, _ = stepping(4000)
    sizes: list[int] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):  # type: ignore[no-untyped-def]
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


def test_only_sampled_centers_are_updated() -> None:
    centers, optimizer = stepping(200, sample=0.2)
    dense = copy.deepcopy(centers)
    dense.row_updates = None
    before = centers.weight.detach().clone()
    torch.testing.assert_close(differentiate(centers), differentiate(dense), rtol=1e-12, atol=1e-12)
    assert dense.weight.grad is not None
    drawn = dense.weight.grad.abs().sum(dim=1) > 0
    assert drawn.sum() == 40
    expected = before - 0.3 * (dense.weight.grad + 0.01 * before)
    torch.testing.assert_close(centers.weight[drawn], expected[drawn], rtol=1e-12, atol=1e-12)
    assert torch.equal(centers.weight[~drawn], before[~drawn])
    momentum = optimizer.state[centers.weight]["momentum_buffer"]
    assert not momentum[~drawn].any()
    assert momentum[drawn].any(dim=1).all()
