"""A training step must not wait for the device, which would then wait for the host."""

import pytest
import torch
from torch.fx.experimental import _config as experimental

from facerts.losses import LOSSES
from facerts.training.init_weights import InitialWeights
from facerts.training.learner import Learner
from facerts.training.loader import Batch
from tests.training.fake_device import META, Waits, use_fake_device

PEOPLE, IMAGES, STEPS = 1000, 16, 3
# The number of pairs or of people in a batch is known to the device alone.
WAIT_EACH_STEP = {"pfe", "esupcon", "spce"}
# The network with the fewest operations.
NETWORK = "backbone.name=compact"
FAST = ("rts", "pfe", "supcon")


def slow(parameter):
    return pytest.param(parameter, marks=pytest.mark.slow)


@pytest.fixture
def fake_device(monkeypatch):
    use_fake_device(monkeypatch)
    monkeypatch.setattr("facerts.training.learner.init_weights", lambda *_: InitialWeights())
    # The result of nonzero then has the shape that it has if nothing is zero.
    with experimental.patch(meta_nonzero_assume_all_nonzero=True):
        yield


def waits(recipe, steps):
    """The waits of some steps."""
    learner = Learner(recipe, PEOPLE)
    views = learner.loss.views
    found = Waits()
    with found:
        for step in range(steps):
            labels = torch.empty(views * IMAGES, dtype=torch.int64, device=META)
            crops = torch.empty((views * IMAGES, 112, 112, 3), dtype=torch.uint8)
            learner.step(Batch.of(crops, labels, torch.arange(IMAGES).repeat(views)), step, 0.1)
    return found.lines


@pytest.mark.usefixtures("fake_device")
@pytest.mark.parametrize("name", [*FAST, *(slow(name) for name in sorted({*LOSSES} - {*FAST}))])
def test_steps_do_not_wait(make_recipe, name):
    overrides = ["backbone.weights=unused"] if LOSSES[name].trains == "heads" else []
    found = waits(make_recipe(NETWORK, f"method.name={name}", *overrides), STEPS)
    assert len(found) <= (STEPS if name in WAIT_EACH_STEP else 0), found


@pytest.mark.usefixtures("fake_device")
@pytest.mark.parametrize(
    "overrides",
    [
        ["optim.average=0.99", "optim.clip_norm=5", "compute.class_sample=0.1"],
        slow(["optim.algorithm=adamw"]),
        slow(["compute.accumulate=2"]),
        slow(["compute.recompute=true"]),
        slow(["method.name=tempnet", "method.denominator_rate=0.8"]),
        slow(["method.name=rts", "method.margin_gradient=straight"]),
    ],
)
def test_no_option_makes_steps_wait(make_recipe, overrides):
    assert waits(make_recipe(NETWORK, *overrides), STEPS) == []


@pytest.mark.usefixtures("fake_device")
def test_the_fake_device_notices_waits():
    values = torch.ones(3, device=META)
    with Waits() as found:
        values.sum().item()
        values.cpu()
        torch.ones(3).to(META)
        torch.tensor(2.0, device=META)
        values[values > 0]
        torch.ones(3).to(META, non_blocking=True)
    assert len(found.lines) == 5, found.lines
