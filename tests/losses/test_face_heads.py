"""Outputs that tell non-faces from faces and covered faces from others: data, loss, training and export."""

import numpy as np
import pytest
import torch

from facerts.datasets import open_source
from facerts.datasets.synthetic import draw_non_face
from facerts.embedding.onnx_embedder import OnnxQuality
from facerts.evaluation.while_training import to_network_input
from facerts.images import encode_png
from facerts.losses.face_heads import (
    COVERED,
    FACE_HEADS,
    NON_FACE,
    NOT_A_FACE,
    UNCLEAR,
    calibrate_face_heads,
    face_losses,
)
from facerts.nn import FaceNetwork
from facerts.nn.compact import PatchNetwork
from facerts.training.export import export_run
from facerts.training.init_weights import init_weights
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from facerts.training.loop import train


@pytest.fixture
def options(non_faces, teacher):
    return (
        f"teacher={{models: {teacher}, target: view, method_embedding: teachers, cosine: 0, similarities: 0}}",
        "backbone={name: patch8, width: 0.25, embedding_size: 12, embedding: false}",
        "method={name: crfiqa, target: cosine}",
        f"data.non_faces={non_faces}",
        "data.non_face_share=0.25",
        "data.augmentation={views: 3, change: 0.8, kinds: [mask, gray, occlusion]}",
        "data.name=drawn",
        "data.terms=none",
        "data.holdout_identities=4",
        "optim={epochs: 2, batch_size: 16, milestones: [], lr: 0.01}",
    )


def test_a_batch_ends_with_an_equal_share_of_each_source_of_non_faces(options, make_recipe, non_faces, tmp_path):
    few = tmp_path / "few"
    few.mkdir()
    (few / "0.png").write_bytes(encode_png(draw_non_face(10)))
    recipe = make_recipe(*options, f"data.non_faces=[{non_faces}, {few}]")
    data = TrainingData(recipe)
    batches = list(data.batches(0, 12))
    rows = [samples[12:].tolist() for _, _, samples, *_ in batches]
    first = len(data)
    assert sorted(row for of_batch in rows for row in of_batch[:2]) == list(range(first, first + 24))
    assert {row for of_batch in rows for row in of_batch[2:]} == {first + 24}
    for _, labels, *_, covered in batches:
        assert (labels[:12] >= 0).all()
        assert labels[12:].tolist() == [NON_FACE] * 4
        assert set(covered.tolist()) <= {0, 1, UNCLEAR}
    assert {int(mark) for *_, marks in batches for mark in marks} == {0, 1, UNCLEAR}
    # No teacher is asked about them, so they come in more than the three kept views and their mirror images.
    shown = {crop.numpy().tobytes() for crops, *_ in data.batches(0, 20) for crop in crops[14:]}
    assert len(shown) > 20


def test_the_losses_are_cross_entropies_over_what_is_known():
    logits = {NOT_A_FACE: torch.tensor([[2.0], [-1.0], [0.5]]), COVERED: torch.tensor([[3.0], [-2.0], [9.0]])}
    labels = torch.tensor([4, -1, NON_FACE])

    def entropy(logit, truth):
        return float(np.log1p(np.exp(-logit if truth else logit)))

    losses = face_losses(logits, labels, torch.tensor([1, 0, 1]))
    assert losses[NOT_A_FACE].item() == pytest.approx(
        np.mean([entropy(2, False), entropy(-1, False), entropy(0.5, True)])
    )
    # What covers a non-face is no question.
    assert losses[COVERED].item() == pytest.approx(np.mean([entropy(3, True), entropy(-2, False)]))
    unclear = face_losses(logits, labels, torch.tensor([UNCLEAR, 0, 0]))
    assert unclear[COVERED].item() == pytest.approx(entropy(-2, False))
    assert face_losses(logits, labels, torch.full((3,), UNCLEAR))[COVERED].item() == 0


def test_the_quality_learns_from_faces_alone_and_that_non_faces_have_none(options, make_recipe, tmp_path):
    from facerts.training.distillation import open_distillation

    recipe = make_recipe(*options)
    data = TrainingData(recipe)
    learner = Learner(recipe, data.identities, open_distillation(recipe, data.source, None, tmp_path))
    batch = next(data.batches(0, 1))

    def outputs(of_faces, of_things):
        r = torch.tensor([of_faces] * 12 + [of_things] * 4)[:, None]
        return {"embedding": torch.zeros(16, 0), "own_cosine": r, NOT_A_FACE: r * 0, COVERED: r * 0}

    def parts(of_faces, of_things):
        found = learner._loss_with_face_heads(outputs(of_faces, of_things), batch, 0, 1.0)
        return {name: value.item() for name, value in found.parts.items()} | {"total": found.total.item()}

    first, other_things, other_faces = parts(0.2, 0.0), parts(0.2, 0.3), parts(0.6, 0.0)
    assert first["regression"] == other_things["regression"] != other_faces["regression"]
    assert first["non_face_quality"] == other_faces["non_face_quality"] == 0
    # λ = 10, and e² / 2β with β = 0.5; a quarter of the batch are non-faces.
    assert other_things["non_face_quality"] == pytest.approx(10 * 0.3**2)
    assert other_things["total"] - first["total"] == pytest.approx(10 * 0.3**2 / 4)
    assert first["not_a_face"] == pytest.approx(np.log(2))


def test_both_outputs_are_exported_and_tell_what_was_learned(options, make_recipe, tmp_path, non_faces):
    recipe = make_recipe(*options, "optim={epochs: 40, batch_size: 16, milestones: [], algorithm: adamw, lr: 0.003}")
    train(recipe, tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "q.onnx")
    exported = OnnxQuality(tmp_path / "q.onnx")
    assert set(exported.description.outputs) == {"quality", "uncertainty", NOT_A_FACE, COVERED}
    faces = TrainingData(recipe).heldout
    assert faces is not None
    of_faces, of_things = (
        exported.tensors(np.stack([source.crop(row) for row in range(len(source))]))[NOT_A_FACE]
        for source in (faces, open_source(non_faces))
    )
    assert np.mean(of_faces[:, None] < of_things) > 0.8
    # At 0, one of 200 held-out faces may be called none, changed as they were in training.
    assert (of_faces > 0).mean() < 0.1
    # A run that starts from the file has all that is in it, its heads too.
    loss = recipe.build_loss()
    network = recipe.build_network(loss)
    init_weights(tmp_path / "q.onnx", network, loss, None)
    crops = np.stack([faces.crop(row) for row in range(8)])
    with torch.no_grad():
        again = network.eval()(to_network_input(torch.from_numpy(crops)))
    for name, head in (("quality", "own_cosine"), (NOT_A_FACE, NOT_A_FACE), (COVERED, COVERED)):
        np.testing.assert_allclose(again[head][:, 0].numpy(), exported.tensors(crops)[name], atol=1e-4)


def test_the_outputs_are_calibrated_to_their_shares_of_false_alarms():
    torch.manual_seed(3)
    network = FaceNetwork(PatchNetwork(width=0.25), 48, 0, FACE_HEADS).eval()
    images, covered = torch.randn(900, 3, 112, 112), torch.randint(-1, 2, (900,))
    calibrate_face_heads(network, images, covered)
    with torch.no_grad():
        found = network(images)
    assert (found[NOT_A_FACE] > 0).float().mean().item() == pytest.approx(0.005, abs=0.002)
    bare = found[COVERED][covered == 0] > 0
    assert 1 <= int(bare.sum()) <= 2
