"""Properties of every method in the registry; new methods are tested without a change here."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from facerts.losses import LOSSES, ClassificationLoss
from facerts.losses.face_loss import setting_names
from facerts.losses.partial_fc import PartialFC
from facerts.nn.twin_heads import HeadSpec
from tests.loss_examples import Images, batch_of, value_of

CLASSIFY = [name for name, method in LOSSES.items() if issubclass(method, ClassificationLoss)]
WITHOUT_HEAD = [
    *("arcface", "cosface", "magface", "adaface", "supcon", "esupcon", "tightness", "spce", "tau", "tempnet")
]
# Few views to contrast allow a small ρ only.
SETTINGS = {"tempnet": {"rho": 0.5}}
# To autograd these are constants in a part of the loss, but not to finite differences.
DETACHED = {
    **dict.fromkeys(("adaface", "pfe", "tightness", "spce"), ("embedding",)),
    "crfiqa": ("embedding", "centers"),
}


def build(name, **settings):
    """A method on embeddings of 8 values, its own network in float64."""
    torch.manual_seed(1)
    known = setting_names(LOSSES[name])
    chosen = {key: value for key, value in settings.items() if key in known}
    method = LOSSES[name](embedding_size=8, **{**SETTINGS.get(name, {}), **chosen})
    method.state.double()
    return method


def example(method):
    """Centers of five people, outputs for images of three of them, two images of each, and their batch."""
    torch.manual_seed(2)
    batch = batch_of([0, 1, 4, 0, 1, 4], method.views)
    centers, rows = PartialFC(5, 8).double(), len(batch.labels)
    outputs = {"embedding": torch.randn(rows, 8, dtype=torch.float64)}
    for name, head in method.heads().items():
        outputs[name] = 0.3 * torch.randn(rows, head.size, dtype=torch.float64)
    return centers, outputs, batch


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_of_the_whole_loss_by_gradcheck(name):
    method = build(name, logit_scale=8.0, stop_gradient=False, momentum=1 - 1e-12)
    centers, outputs, batch = example(method)
    if name == "magface":
        # Norms inside of its range, one below and one above it.
        lengths = torch.tensor([40.0, 5.0, 60.0, 20.0, 90.0, 150.0], dtype=torch.float64)
        outputs["embedding"] = F.normalize(outputs["embedding"]) * lengths.unsqueeze(1)
    # They start with norms of about 0.03, which is too short for finite differences.
    centers.weight.data *= 100
    inputs = {**outputs, **({"centers": centers.weight} if method.needs_centers else {})}
    learned = {key: value.requires_grad_() for key, value in inputs.items() if key not in DETACHED.get(name, ())}
    # It changes its inputs in place.
    assert torch.autograd.gradcheck(lambda *_: value_of(method, outputs, batch, centers).total, tuple(learned.values()))


# What leaves a method's loss at that of ArcFace, and the outputs of its head that do.
NEUTRAL = {
    "arcface": ({}, 0.0),
    "cosface": ({}, 0.0),
    "magface": ({"regularizer_weight": 0.0}, 0.0),
    "adaface": ({}, 0.0),
    "crfiqa": ({"regression_weight": 0.0}, 0.0),
    "rts": ({"temperature": "none", "kl_weight": 0.0}, 0.4),
    "dul": ({"kl_weight": 0.0}, -1000.0),
    "godin": ({}, 50.0),
    "relaxed_softmax": ({}, 0.0),
}


@pytest.mark.parametrize("name", CLASSIFY)
def test_neutral_heads_leave_arcface_and_no_margin_the_scaled_softmax(name):
    for margin in (0.0, 0.3):
        if margin and name in {"cosface", "adaface"}:
            continue
        settings, head = NEUTRAL[name]
        method = build(name, logit_scale=8.0, margin=margin, lower_margin=margin, upper_margin=margin, **settings)
        centers, outputs, batch = example(method)
        outputs.update({key: torch.full_like(outputs[key], head) for key in method.heads()})
        cosine = F.normalize(outputs["embedding"]) @ F.normalize(centers.weight).T
        own = F.one_hot(batch.labels, 5).bool()
        logits = 8 * torch.where(own, torch.cos(torch.arccos(cosine) + margin), cosine)
        # The smallest variance of DUL leaves some noise.
        tolerance = 5e-3 if name == "dul" else 1e-7
        torch.testing.assert_close(
            value_of(method, outputs, batch, centers).total,
            F.cross_entropy(logits, batch.labels),
            rtol=0,
            atol=tolerance,
        )


@pytest.mark.parametrize("name", CLASSIFY)
def test_the_ramp_scales_the_margin(name):
    margins = {"margin": 0.4, "lower_margin": 0.4, "upper_margin": 0.6}
    totals = []
    for share, ramp in ((1.0, 0.5), (0.5, 1.0), (1.0, 1.0)):
        method = build(name, **{key: share * value for key, value in margins.items()})
        centers, outputs, batch = example(method)
        batch = Images(batch.labels, batch.samples, batch.step, ramp)
        totals.append(value_of(method, outputs, batch, centers).total)
    torch.testing.assert_close(totals[0], totals[1])
    assert totals[2] > totals[0]


def assert_finite(method, inputs, batch, centers, case):
    """The loss, what is logged of it, and all gradients."""
    loss = value_of(method, inputs, batch, centers)
    (loss.total + 0.0 * centers.weight.sum()).backward()
    gradients = [value.grad for value in (*inputs.values(), centers.weight, *method.state.parameters())]
    for value in (loss.total, *gradients, *loss.parts.values(), *loss.per_image.values()):
        assert value is None or value.isfinite().all(), case
    assert not any(value.requires_grad for value in loss.parts.values())


@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradients_are_finite_at_the_ends(name):
    lengths = (1.0, -1.0, 30.0, -30.0, 300.0, 0.0)
    heads = (-1000.0, 0.0, 1000.0)
    gradients = ("exact", "straight") if "margin_gradient" in setting_names(LOSSES[name]) else ("exact",)
    for length, head, half, gradient in itertools.product(lengths, heads, (torch.bfloat16, torch.float16), gradients):
        method = build(name, momentum=0.0, margin_gradient=gradient)
        centers, outputs, batch = example(method)
        centers, method.state = centers.float(), method.state.float()
        own = F.normalize(centers.weight.detach())[batch.labels]
        inputs = {"embedding": (length * own).to(half).float().requires_grad_()}
        for key in method.heads():
            inputs[key] = torch.full_like(outputs[key].float(), head, requires_grad=True)
        assert_finite(method, inputs, batch, centers, (length, head, half, gradient))


@pytest.mark.parametrize("name", ["supcon", "esupcon", "tightness", "spce", "tau"])
def test_odd_batches_give_a_finite_loss_and_gradient(name):
    odd = {"same views": [4, 1, 4, 0, 1, 4], "no positive": [0, 1, 2], "one person": [3] * 6, "one row": [3]}
    for (case, labels), half, temperature, head in itertools.product(
        odd.items(), (torch.float32, torch.bfloat16, torch.float16), (0.1, 1e-3), (-1e4, 0.0, 1e4)
    ):
        method = build(name, **{"tau_min" if name == "tau" else "temperature": temperature})
        batch = batch_of(labels, 2 if len(labels) == 6 else 1)
        embedding, centers = torch.randn(len(batch.labels), 8), PartialFC(5, 8)
        if case == "same views":
            embedding[6:] = embedding[:6]
        inputs = {"embedding": (60 * embedding).to(half).float().requires_grad_()}
        for key, spec in method.heads().items():
            inputs[key] = torch.full((len(embedding), spec.size), head, requires_grad=True)
        assert_finite(method, inputs, batch, centers, (case, half, temperature, head))


@pytest.mark.parametrize(("name", "unit"), [("dul", 1), ("pfe", 1 / 8)])
def test_a_variances_score_is_its_harmonic_mean(name, unit):
    method = build(name)
    assert method.heads() == {"log_variance": HeadSpec(8, batch_norm=True)}
    variance = torch.tensor([[1.0, 2, 4, 8, 1, 2, 4, 8], [0.1] * 8, [2.0, 1, 1, 1, 1, 1, 1, 1]])
    embedding = torch.randn(3, 8)
    scored = method.score({"embedding": embedding, "log_variance": variance.log()})
    torch.testing.assert_close(scored["embedding"], F.normalize(embedding))
    np.testing.assert_allclose(scored["uncertainty"], stats.hmean(variance, axis=1) * unit, rtol=1e-5)
    assert torch.equal(scored["quality"], -scored["uncertainty"])
    np.testing.assert_allclose(scored["variance"], variance * unit, rtol=1e-6)


def test_without_a_head_the_norm_is_the_quality():
    embedding = torch.tensor([[3.0, 4.0], [300.0, 400.0]])
    settings = {
        "tau": [{"temperature": "fixed"}],
        "tempnet": [{"temperature": t} for t in ("fixed", "individual")],
    }
    for name, config in [(each, config) for each in WITHOUT_HEAD for config in settings.get(each, [{}])]:
        method = LOSSES[name](embedding_size=2, **config)
        assert method.heads() == {}
        assert not method.learns_beside_embedding
        scored = method.score({"embedding": embedding})
        assert scored["quality"].tolist() == scored["norm"].tolist() == [5.0, 500.0]
        assert scored["uncertainty"].tolist() == [-5.0, -500.0]
        torch.testing.assert_close(scored["embedding"], torch.tensor([[0.6, 0.8], [0.6, 0.8]]))


@pytest.mark.parametrize(
    ("name", "key", "sign"),
    [("relaxed_softmax", "confidence", 1), ("godin", "divisor", -1), ("rts", "log_scale", -1)],
)
def test_where_the_right_identity_wins_the_loss_sharpens_and_elsewhere_it_flattens(name, key, sign):
    method = build(name, logit_scale=8.0, margin=0.1, kl_weight=0.0)
    centers = PartialFC(5, 8)
    embedding = F.normalize(centers.weight.detach())[[0, 2]]  # of 0, which wins; of 1, which 2 beats
    x = torch.zeros(2, method.heads()[key].size, requires_grad=True)
    value_of(method, {"embedding": embedding, key: x}, batch_of([0, 1]), centers).total.backward()
    assert x.grad is not None
    downhill = -sign * x.grad.sum(dim=1)
    assert downhill[0] > 0 > downhill[1]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cosface", {"margin": -0.1}),
        ("cosface", {"margin_gradient": "exact"}),
        ("magface", {"lower_norm": 110}),
        ("magface", {"lower_margin": 0.9}),
        ("adaface", {"momentum": 1}),
        ("rts", {"scale": "both"}),
        ("rts", {"margin": float("nan")}),
        ("spce", {"projection": 128}),
        ("tempnet", {"tau_min": 0.05}),
    ],
)
def test_impossible_settings_are_refused(name, settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        LOSSES[name](**settings)
