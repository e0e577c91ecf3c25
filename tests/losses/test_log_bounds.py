"""Predicted logarithms far outside: finite losses, gradients that lead back, and nothing changed inside."""

import math

import numpy as np
import pytest
import torch

from facerts.losses import LOSSES, dul, pfe, rts
from facerts.losses.log_bounds import LogBounds
from facerts.losses.partial_fc import PartialFC
from facerts.losses.rts import LOG_SCALES, RTS
from facerts.training.learner import Learner
from tests.loss_examples import Images, batch_for, batch_of, value_of

BOUNDS = {"rts": (rts, "LOG_SCALES"), "dul": (dul, "LOG_VARIANCES"), "pfe": (pfe, "LOG_VARIANCES")}


def loss_at(name, z):
    """The loss where all heads output z, and its gradients with respect to the embeddings and the first head."""
    torch.manual_seed(3)
    method = LOSSES[name](embedding_size=12)
    batch = batch_of([0, 1, 2, 3, 0, 1, 2, 3], method.views)
    rows = len(batch.labels)
    outputs = {"embedding": torch.randn(rows, 12).requires_grad_()}
    for head, spec in method.heads().items():
        value = torch.as_tensor(z, dtype=torch.float32).expand(rows, spec.size)
        outputs[head] = value.clone().requires_grad_()
    loss = value_of(method, outputs, batch, PartialFC(7, 12))
    own = next(iter(method.heads()))
    # PFE does not use the embeddings' gradient.
    gradients = torch.autograd.grad(
        loss.total, [outputs["embedding"], outputs[own]], allow_unused=True, materialize_grads=True
    )
    return loss, gradients[0], gradients[1]


@pytest.mark.parametrize("name", BOUNDS)
def test_inside_the_bounds_nothing_changes(name, monkeypatch):
    class Unguarded(LogBounds):
        def __call__(self, log):
            return log

    module, constant = BOUNDS[name]
    bounds = getattr(module, constant)
    # PFE's log variances are relative to 1/12.
    z = torch.linspace(max(bounds.low, -50) + 3, bounds.high, 8).unsqueeze(1)
    guarded = loss_at(name, z)
    monkeypatch.setattr(module, constant, Unguarded(*bounds))
    unguarded = loss_at(name, z)
    assert torch.equal(guarded[0].total, unguarded[0].total)
    assert all(torch.equal(a, b) for a, b in zip(guarded[1:], unguarded[1:], strict=True))
    assert guarded[0].parts["out_of_bounds"] == 0


@pytest.mark.parametrize("name", BOUNDS)
def test_outside_the_bounds_descent_leads_back_and_images_are_counted(name):
    for z, sign in ((200.0, 1), (-200.0, -1)):
        loss, _, gradient = loss_at(name, z)
        assert (gradient * sign >= 0).all()
        assert (gradient != 0).any(dim=1).all()
        # Small scales of RTS need no bound.
        assert loss.parts["out_of_bounds"] == (0 if name == "rts" and z < 0 else len(gradient))


@pytest.mark.parametrize(("scale", "size"), [("shared", 1), ("vector", 16)])
def test_without_a_temperature_the_divergence_alone_pulls_as_at_the_nearer_bound(scale, size):
    z = torch.linspace(-200, 200, 41).unsqueeze(1).repeat(1, size).requires_grad_()
    method = RTS(temperature="none", scale=scale, kl_weight=10)
    outputs = {"embedding": torch.randn(41, 5), "log_scale": z}
    loss = value_of(method, outputs, batch_of([0] * 41), PartialFC(3, 5))
    (gradient,) = torch.autograd.grad(loss.total, z)
    v = np.exp(np.minimum(z.detach().double().numpy(), 12))
    np.testing.assert_allclose(gradient.numpy(), 10 * (v - 1) / (2 * size * 41), rtol=1e-5)


def test_a_gradient_that_leads_out_is_dropped_and_broken_values_stay():
    bounds = LogBounds(-2.0, 3.0)
    values = torch.tensor([-5.0, -5.0, -2.0, -2.0, 3.0, 3.0, 4.0, 4.0], requires_grad=True)
    weights = torch.tensor([1.0, -1.0] * 4)
    (gradient,) = torch.autograd.grad((weights * bounds(values)).sum(), values)
    assert gradient.tolist() == [0, -1, 1, -1, 1, -1, 1, 0]
    assert bounds(values).tolist() == [-2, -2, -2, -2, 3, 3, 3, 3]
    broken = bounds(torch.tensor([math.inf, -math.inf, math.nan]))
    assert broken.tolist()[:2] == [math.inf, -math.inf]
    assert broken[2].isnan()
    assert bounds.images_outside(torch.tensor([[0.0, 3.0], [0.0, 3.1], [-9.0, 9.0]])) == 2


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_run_whose_scales_overflow_goes_on_and_comes_back(make_recipe, precision):
    settings = ("backbone.dropout=0", "optim.weight_decay=0", f"compute.precision={precision}")
    learner = Learner(make_recipe(*settings), identities=4)
    bias = learner.network.heads["log_scale"][1].bias
    with torch.no_grad():
        bias.fill_(90.0)
    generator = torch.Generator().manual_seed(1)
    crops = torch.randint(0, 256, (8, 112, 112, 3), dtype=torch.uint8, generator=generator)
    for step in range(2):
        batch = Images(torch.arange(8) % 4, torch.arange(8), step=step)
        loss = learner.step(batch_for(crops, batch), step, 1e-5)
        assert loss.parts["out_of_bounds"] == 8
        assert LOG_SCALES.high < bias.min() <= bias.max() < 89.9 - step
