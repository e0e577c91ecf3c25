import pytest
import torch

from facerts.errors import NonFiniteLossError
from facerts.training.checkpoint import save_checkpoint
from facerts.training.learner import Learner
from facerts.training.loader import Batch


def crops(count=8):
    return torch.randint(0, 256, (count, 112, 112, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def batch(count=8):
    return Batch.of(crops(count), torch.arange(count) % 4, torch.arange(count))


def copy_of(learner):
    return [p.detach().clone() for p in (*learner.network.parameters(), *learner.centers.parameters())]


def test_the_memory_format_does_not_change_the_loss(make_recipe):
    recipes = (make_recipe(f"compute.channels_last={last}", "backbone.dropout=0") for last in ("true", "false"))
    losses = [Learner(recipe, 4).step(batch(), 0, 0.02).total.item() for recipe in recipes]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_clipping_bounds_the_step_of_the_network_and_not_of_the_class_centers(make_recipe, precision):
    norms = []

    def change(*overrides):
        settings = ("optim.weight_decay=0", "backbone.dropout=0", f"compute.precision={precision}")
        learner = Learner(make_recipe(*settings, *overrides), identities=4)
        if precision == "fp16":
            learner.scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
        *network, centers = copy_of(learner)
        norms.append(learner.step(batch(), 0, 1.0).parts.get("gradient_norm"))
        *after, centers_after = copy_of(learner)
        squares = [(old - new).square().sum() for old, new in zip(network, after, strict=True)]
        return float(torch.stack(squares).sum().sqrt()), centers_after - centers

    # The first step of SGD with momentum is the rate times the gradient.
    norm, moved = change()
    assert norm > 0.1
    clipped, moved_too = change("optim.clip_norm=0.01")
    assert clipped == pytest.approx(0.01, rel=1e-3)
    assert moved.norm() > 0.1
    torch.testing.assert_close(moved_too, moved, rtol=1e-3, atol=1e-5)
    assert norms == [None, pytest.approx(norm, rel=1e-3)]


def test_an_overflow_of_fp16_is_not_in_the_log(make_recipe):
    learner = Learner(make_recipe("compute.precision=fp16", "optim.clip_norm=1"), identities=4)
    before = copy_of(learner)
    learner.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
    assert "gradient_norm" not in learner.step(batch(), 0, 0.1).parts
    assert all(torch.equal(old, new) for old, new in zip(before, copy_of(learner), strict=True))


def test_validation_leaves_the_network_in_training(make_recipe):
    learner = Learner(make_recipe(), identities=4)
    learner.step(batch(), 0, 0.02)
    state = {name: value.clone() for name, value in learner.network.state_dict().items()}
    outputs = learner.embedder()(crops().numpy())
    assert outputs.embedding.shape == (8, 16)
    assert learner.network.training
    torch.testing.assert_close(dict(learner.network.state_dict()), state, rtol=0, atol=0)


@pytest.mark.parametrize(("algorithm", "moment"), [("sgd", "momentum_buffer"), ("adamw", "exp_avg_sq")])
def test_moments_of_another_shape_are_refused_and_settings_are_the_recipes(make_recipe, algorithm, moment):
    recipe = make_recipe(f"optim.algorithm={algorithm}")
    learner = Learner(recipe, identities=4)
    learner.step(batch(), 0, 0.02)
    state = learner.state_dict()
    state["optimizer"]["param_groups"][0]["weight_decay"] = 1e30
    restored = Learner(recipe, identities=4)
    restored.load_state_dict(state)
    assert restored.optimizer.param_groups[0]["weight_decay"] == recipe.optim.weight_decay
    entry = state["optimizer"]["state"][0]
    good = entry[moment]
    for broken in (good.reshape(-1), good.flatten()[:1], good.long()):
        entry[moment] = broken
        with pytest.raises(ValueError, match="the optimizer's state 0 does not fit its weight of shape"):
            Learner(recipe, identities=4).load_state_dict(state)
    del entry[moment]
    with pytest.raises(ValueError, match="the optimizer's state 0"):
        Learner(recipe, identities=4).load_state_dict(state)


def test_a_state_with_weights_that_are_not_finite_is_not_saved(make_recipe, tmp_path):
    learner = Learner(make_recipe(), identities=4)
    with torch.no_grad():
        learner.network.embedding[0].weight.fill_(float("inf"))
    with pytest.raises(NonFiniteLossError, match=r"c\.pt: not written, .* after step 7 .*embedding\.0\.weight"):
        save_checkpoint(tmp_path / "c.pt", learner.recipe, {"step": 7, **learner.state_dict()})
    assert not list(tmp_path.glob("*.pt"))
