"""The methods that contrast the identities of a batch (supcon, esupcon, tightness, spce) and what they are made of."""

import math

import numpy as np
import onnx
import pytest
import torch
from torch.nn import functional as F

from facerts.losses import LOSSES
from facerts.losses.contrastive import info_nce, positives, similarities
from facerts.losses.partial_fc import PartialFC
from facerts.training.checkpoint import save_checkpoint
from facerts.training.export import export_run
from facerts.training.learner import Learner
from tests.loss_examples import Images, batch_of, dot, slow_info_nce, slow_nt_xent, units, value_of

NAMES = ["supcon", "esupcon", "tightness", "spce"]
PROJECTING = ["supcon", "tightness"]
LABELS = [4, 1, 4, 0, 1, 4]
CLASSES = 6


def build(name, temperature=0.1):
    return LOSSES[name](temperature=temperature)


def example(size=5):
    torch.manual_seed(11)
    batch = batch_of(LABELS, 2)
    centers = PartialFC(CLASSES, size).double()
    return centers, torch.randn(len(batch.labels), size, dtype=torch.float64), batch


def slow_supcon(rows, labels, tau):
    positive = [[j for j, y in enumerate(labels) if y == labels[i] and j != i] for i in range(len(labels))]
    return slow_info_nce(rows, positive, [tau] * len(labels))


# What they are made of


def test_cosines_have_at_least_single_precision():
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        embedding = torch.randn(5, 7).to(dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            actual = similarities(embedding)
        assert actual.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        exact = F.normalize(embedding.double()) @ F.normalize(embedding.double()).T
        torch.testing.assert_close(actual.double(), exact, atol=1e-6, rtol=0)


@pytest.mark.parametrize("rows", [1, 3])
def test_no_positive_gives_no_loss_and_no_gradient(rows):
    logits = torch.randn(rows, rows, requires_grad=True)
    loss = info_nce(logits, positives(torch.arange(rows)))
    assert torch.equal(loss, torch.zeros(rows))
    loss.sum().backward()
    assert torch.equal(logits.grad, torch.zeros(rows, rows))


# The losses


def test_supcon_against_a_slow_reading_of_equation_2():
    assert {(LOSSES[name].views, LOSSES[name].sampler) for name in NAMES} == {(2, "identities")}
    centers, embedding, batch = example()
    loss = value_of(build("supcon", 0.3), {"embedding": embedding}, batch, centers).total.item()
    slow = slow_supcon(embedding, batch.labels.tolist(), 0.3)
    assert loss == pytest.approx(sum(slow) / len(slow), rel=1e-10)
    # Two views without labels make it SimCLR's loss.
    unlabeled = Images(batch.samples, batch.samples, batch.step)
    loss = value_of(build("supcon", 0.2), {"embedding": embedding}, unlabeled, centers).total.item()
    assert loss == pytest.approx(slow_nt_xent(embedding, 0.2), rel=1e-10)


def test_esupcon_against_a_slow_reading():
    centers, embedding, batch = example()
    tau, labels = 0.4, batch.labels.tolist()
    z, theta = units(embedding), units(centers.weight)
    per_row = []
    for i, label in enumerate(labels):
        pool = sum(math.exp(dot(z[i], prototype) / tau) for prototype in theta)
        pool += sum(math.exp(dot(z[i], z[j]) / tau) for j in range(len(z)) if j != i)
        per_row.append(-dot(z[i], theta[label]) / tau + math.log(pool))
    of_class = {k: [per_row[i] for i, label in enumerate(labels) if label == k] for k in set(labels)}
    total = sum(sum(losses) / len(losses) for losses in of_class.values())
    total += sum(slow_supcon(embedding, labels, tau))
    loss = value_of(build("esupcon", tau), {"embedding": embedding}, batch, centers)
    assert loss.total.item() == pytest.approx(total / (len(labels) + len(of_class)), rel=1e-10)
    # Prototypes of classes that are not in the batch are pushed away.
    loss.total.backward()
    absent = sorted(set(range(CLASSES)) - set(LABELS))
    assert (centers.weight.grad[absent].norm(dim=1) > 0).all()


def test_tightness_is_supcon_and_a_classifier_that_does_not_train_the_embedding():
    centers, embedding, batch = example()
    embedding.requires_grad_()
    supcon = value_of(build("supcon"), {"embedding": embedding}, batch, centers).total
    loss = value_of(build("tightness"), {"embedding": embedding}, batch, centers).total
    z, theta = units(embedding.detach()), units(centers.weight.detach())
    own = [dot(z[i], theta[label]) for i, label in enumerate(batch.labels.tolist())]
    assert loss.item() == pytest.approx(supcon.item() - sum(own) / len(own), rel=1e-10)
    gradients = [torch.autograd.grad(total, embedding)[0] for total in (supcon, loss)]
    torch.testing.assert_close(*gradients)


def test_spce_against_a_slow_reading():
    centers, embedding, batch = example()
    tau, labels = 0.3, batch.labels.tolist()
    present, count = sorted(set(labels)), len(labels)
    # The paper's equation with z = sqrt(K/τ) ẑ.
    z = [[math.sqrt(len(present) / tau) * x for x in row] for row in units(embedding)]
    theta, directions = units(centers.weight), units(embedding)
    total = 0.0
    for i, label in enumerate(labels):
        logits = {k: sum(dot(z[j], z[i]) for j in range(count) if labels[j] == k) / count for k in present}
        total += -logits[label] + math.log(sum(math.exp(x) for x in logits.values()))
        total -= dot(directions[i], theta[label])
    loss = value_of(build("spce", tau), {"embedding": embedding}, batch, centers).total.item()
    assert loss == pytest.approx(total / count, rel=1e-10)


def test_spces_classifier_does_not_train_the_embedding():
    centers, embedding, batch = example()
    embedding.requires_grad_()
    losses = [
        value_of(build("spce"), {"embedding": embedding}, batch, these).total
        for these in (centers, PartialFC(CLASSES, 5).double())
    ]
    assert losses[0] != losses[1]
    first, second = (torch.autograd.grad(loss, embedding)[0] for loss in losses)
    torch.testing.assert_close(first, second)


# The projection network


def build_projecting(name, projection=3):
    torch.manual_seed(21)
    method = LOSSES[name](embedding_size=5, temperature=0.3, projection=projection)
    with torch.no_grad():
        for parameter in method.state.double().parameters():
            parameter.normal_()
    return method


@pytest.mark.parametrize("name", PROJECTING)
def test_projections_of_unit_embeddings_are_contrasted(name):
    centers, embedding, batch = example()
    method, labels = build_projecting(name), batch.labels.tolist()
    w1, b1, w2, b2 = (value.numpy() for value in method.state.state_dict().values())
    assert (w1.shape, w2.shape) == ((5, 5), (3, 5))
    directions = units(embedding)
    rows = [w2 @ np.maximum(w1 @ np.array(row) + b1, 0) + b2 for row in directions]
    slow = slow_supcon(torch.from_numpy(np.stack(rows)), labels, 0.3)
    expected = sum(slow) / len(slow)
    if name == "tightness":
        # The prototypes follow the embeddings, not their projections.
        theta = units(centers.weight)
        expected -= sum(dot(directions[i], theta[label]) for i, label in enumerate(labels)) / len(labels)
    loss = value_of(method, {"embedding": embedding}, batch, centers).total
    assert loss.item() == pytest.approx(expected, rel=1e-10)
    assert torch.autograd.gradcheck(
        lambda *_: value_of(method, {"embedding": embedding}, batch, centers).total, tuple(method.state.parameters())
    )


def test_without_a_projection_there_is_no_network_and_with_one_it_starts_without_biases():
    for name in PROJECTING:
        assert LOSSES[name]().projection == 0
        assert not build(name).state.state_dict()
        fresh = LOSSES[name](embedding_size=64, projection=128).state.state_dict()
        assert [value.shape for value in fresh.values()] == [(64, 64), (64,), (128, 64), (128,)]
        assert [bool((value == 0).all()) for value in fresh.values()] == [False, True, False, True]


@pytest.mark.slow
def test_an_exported_file_has_no_projection_network(make_recipe, tmp_path):
    recipe = make_recipe("method={name: supcon, projection: 11}")
    save_checkpoint(tmp_path / "run.pt", recipe, {"step": 1, "position": 1.0, **Learner(recipe, 8).state_dict()})
    export_run(tmp_path / "run.pt", tmp_path / "supcon.onnx")
    weights = onnx.load(str(tmp_path / "supcon.onnx")).graph.initializer
    assert [list(weight.dims) for weight in weights if "embedding" in weight.name]
    assert not [weight.name for weight in weights if "state" in weight.name or 11 in weight.dims]
