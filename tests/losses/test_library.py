"""The losses in a plain PyTorch loop, without a recipe: every one trains, and what is wrong with a batch is said."""

import math

import pytest
import torch
from pytorch_metric_learning import losses as metric_learning

from facerts.datasets.torch import ImageDataset
from facerts.errors import Error
from facerts.evaluation.while_training import to_network_input
from facerts.losses import LOSSES, RTS, SPCE, ArcFace, CosFace, PartialFC, TempNet
from facerts.nn import build_network
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData

PEOPLE, SIZE = 8, 16
# Few views to contrast allow a small ρ only.
SETTINGS = {"tempnet": {"rho": 1.0}}


@pytest.fixture(scope="module")
def faces(drawn_faces):
    """All images ``(64, 3, 112, 112)`` and their labels, person by person."""
    images, labels = zip(*ImageDataset(drawn_faces), strict=True)
    return torch.stack(images), torch.tensor(labels)


def batches(faces, views, steps):
    """Two images of each person in a step, with some noise in each view."""
    images, labels = faces
    random = torch.Generator().manual_seed(1)
    for step in range(steps):
        rows = torch.arange(len(labels)).reshape(PEOPLE, -1)[:, [step % 8, (step + 3) % 8]].flatten().repeat(views)
        noise = torch.randn(len(rows), *images.shape[1:], generator=random)
        yield images[rows] + 0.1 * noise, labels[rows]


def small_network(loss):
    return build_network("compact", embedding_size=SIZE, heads=loss.heads(), width=0.25, input_size=32)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_falls_in_a_plain_loop_and_scores_are_complete(name, faces):
    torch.manual_seed(0)
    loss = LOSSES[name](PEOPLE, SIZE, **SETTINGS.get(name, {}))
    network = small_network(loss)
    if loss.trains == "heads":
        network.trunk.requires_grad_(False).eval()
        network.embedding.requires_grad_(False).eval()
    optimizer = torch.optim.SGD(loss.parameter_groups(network), lr=0.02, momentum=0.9)
    values = []
    for images, labels in batches(faces, loss.views, 60):
        value = loss(network(images), labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    first, last = (sum(ten) / 10 for ten in (values[:10], values[-10:]))
    # Without learning, batches differ by up to 8%.
    assert last < first - 0.2 * abs(first)
    with torch.no_grad():
        scored = loss.eval().score(network.eval()(faces[0]))
    torch.testing.assert_close(scored["embedding"].norm(dim=1), torch.ones(len(faces[1])))
    for key in ("norm", "quality", "uncertainty"):
        assert scored[key].shape == (len(faces[1]),)
        assert scored[key].isfinite().all()
        assert scored[key].std() > 0


# The same values as elsewhere


@pytest.mark.parametrize("name", ["arcface", "rts"])
def test_a_plain_loop_takes_the_steps_of_a_recipe(name, make_recipe):
    recipe = make_recipe(f"method.name={name}", "optim.epochs=10")
    data, rate = TrainingData(recipe), recipe.optim.lr
    learner = Learner(recipe, data.identities)
    expected = [learner.step(batch, step, rate).item() for step, batch in enumerate(data.batches(0, 20))]

    torch.manual_seed(recipe.seed)
    loss = LOSSES[name](data.identities, SIZE, seed=recipe.seed)
    network = build_network("mobilefacenet", embedding_size=SIZE, heads=loss.heads(), width=0.125, dropout=0.2)
    decay = recipe.optim.weight_decay
    optimizer = torch.optim.SGD(loss.parameter_groups(network), rate, momentum=0.9, weight_decay=decay)
    found = []
    for step, batch in enumerate(data.batches(0, 20)):
        optimizer.zero_grad()
        value = loss(network(to_network_input(batch.crops)), batch.labels, samples=batch.samples, step=step)
        value.backward()
        optimizer.step()
        found.append(value.item())
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ArcFace(20, SIZE), metric_learning.ArcFaceLoss(20, SIZE, margin=math.degrees(0.5), scale=64)),
        (CosFace(20, SIZE), metric_learning.CosFaceLoss(20, SIZE, margin=0.35, scale=64)),
    ],
    ids=["arcface", "cosface"],
)
def test_values_and_gradients_are_those_of_pytorch_metric_learning(ours, theirs):
    torch.manual_seed(0)
    embedding, labels = torch.randn(32, SIZE, dtype=torch.float64), torch.arange(32) % 20
    centers = torch.randn(20, SIZE, dtype=torch.float64)
    # Theirs has no fallback for angles that the margin carries beyond π.
    embedding += 0.5 * centers[labels]
    values, gradients = [], []
    for loss, weight in ((ours.double(), centers), (theirs.double(), centers.T)):
        loss.load_state_dict({next(iter(loss.state_dict())): weight})
        y = embedding.clone().requires_grad_()
        value = loss(y, labels)
        value.backward()
        values.append(value.item())
        gradients.append(y.grad)
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_single(dtype):
    torch.manual_seed(0)
    loss, labels = RTS(PEOPLE, SIZE), torch.arange(PEOPLE)
    half = [torch.randn(PEOPLE, SIZE).to(dtype).requires_grad_() for _ in range(2)]
    value = loss(half, labels, step=0)
    assert value.total.dtype == torch.float32
    torch.testing.assert_close(value.total, loss([each.float() for each in half], labels, step=0).total)
    value.backward()
    assert all(each.grad is not None and each.grad.dtype == dtype for each in half)


@pytest.mark.slow
def test_a_compiled_loss_has_the_same_value():
    torch.manual_seed(0)
    loss, labels = RTS(PEOPLE, SIZE), torch.arange(PEOPLE)
    outputs = (torch.randn(PEOPLE, SIZE), torch.randn(PEOPLE, SIZE))
    torch.testing.assert_close(torch.compile(loss)(outputs, labels, step=0).total, loss(outputs, labels, step=0).total)


def test_calls_are_counted_as_steps_in_training_only():
    loss, labels = RTS(PEOPLE, SIZE), torch.arange(PEOPLE)
    outputs = (torch.randn(PEOPLE, SIZE), torch.randn(PEOPLE, SIZE))
    by_step = [loss(outputs, labels, step=step).item() for step in range(2)]
    assert [loss(outputs, labels).item() for _ in range(2)] == by_step
    loss.eval()
    assert loss(outputs, labels).item() == loss(outputs, labels).item() != by_step[1]


# Errors


EMBEDDING, LABELS = torch.zeros(4, SIZE), torch.arange(4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: RTS(PEOPLE, SIZE)(EMBEDDING, LABELS),
            r"RTS needs embedding \(4, 16\) and log_scale \(4, 16\) for 4 labels, and got embedding \(4, 16\); "
            r"loss.head\(in_features\) makes the head",
        ),
        (
            lambda: RTS(PEOPLE, SIZE)((EMBEDDING, torch.zeros(4, 1)), LABELS),
            r"needs .* log_scale \(4, 16\) .* got .* log_scale \(4, 1\)",
        ),
        (
            lambda: ArcFace(PEOPLE, SIZE)(EMBEDDING[:3], LABELS),
            r"\(4, 16\) for 4 labels, and got .*\(3, 16\)",
        ),
        (
            lambda: ArcFace(3, SIZE)(EMBEDDING, LABELS - 1),
            "labels must lie in 0 to 2, the num_classes: -1 in row 0 do not",
        ),
        (
            lambda: ArcFace(3, SIZE)(torch.zeros(9, SIZE), torch.arange(9)),
            "3 in row 3, 4 in row 4, 5 in row 5, 6 in row 6, 7 in row 7 and 1 more do not",
        ),
        (lambda: ArcFace(PEOPLE, SIZE)(EMBEDDING, LABELS.int()), r"\(B,\) int64, not \(4,\) torch.int32"),
        (lambda: ArcFace(PEOPLE, SIZE)(EMBEDDING, LABELS.float()), r"\(B,\) int64, not \(4,\) torch.float32"),
        (lambda: ArcFace(embedding_size=SIZE)(EMBEDDING, LABELS), "ArcFace .* build it with num_classes"),
        (lambda: SPCE(embedding_size=SIZE)(EMBEDDING, LABELS), "SPCE .* build it with num_classes"),
        (lambda: TempNet(0, SIZE, contrast="centers")(EMBEDDING, LABELS), "TempNet .* with num_classes"),
        (lambda: SPCE(PEOPLE, SIZE)(EMBEDDING[:3], LABELS[:3]), "SPCE compares 2 views of each image, and 3"),
        (lambda: ArcFace(PEOPLE, SIZE).head(100), "ArcFace needs no head"),
        (
            lambda: ArcFace(PEOPLE, SIZE)((EMBEDDING, EMBEDDING), LABELS),
            "ArcFace takes embedding, and got 2 outputs",
        ),
        (
            lambda: ArcFace(PEOPLE, SIZE, centers=PartialFC(3, SIZE)),
            r"are \(8, 16\), but those of centers \(3, 16\)",
        ),
    ],
)
def test_what_is_wrong_with_a_batch_is_said(call, message):
    with pytest.raises(Error, match=message):
        call()
