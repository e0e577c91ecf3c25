import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from facerts.calibration.quality_thresholds import calibrate
from facerts.datasets.fingerprint import hash_images
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from facerts.errors import ModelError
from facerts.evaluation.while_training import NetworkEmbedder
from facerts.training import export as export_module
from facerts.training.checkpoint import FILE, load_checkpoint, load_network, save_checkpoint
from facerts.training.export import check_parity, export_run
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from facerts.training.loop import train
from tests.command import run


def test_the_file_follows_the_contract(exported):
    model = onnx.load(str(exported))
    assert next(entry.version for entry in model.opset_import if not entry.domain) >= 17
    session = onnxruntime.InferenceSession(str(exported), providers=["CPUExecutionProvider"])
    (image,) = session.get_inputs()
    assert (image.name, image.type, image.shape[1:]) == ("image", "tensor(float)", [3, 112, 112])
    assert isinstance(image.shape[0], str)
    outputs = {output.name: output.shape for output in session.get_outputs()}
    assert set(outputs) == {"embedding", "norm", "quality", "uncertainty", "log_scale"}
    assert outputs["embedding"][1] == 16
    assert outputs["log_scale"][1] == 16
    description = json.loads(session.get_modelmeta().custom_metadata_map["facerts"])
    assert description["schema"] == "facerts.model/1"
    assert description["method"] == "rts"
    assert description["training_data"] == "drawn"
    assert description["input"]["mean"] == [127.5] * 3
    assert len(description["recipe_sha256"]) == 64


def test_the_file_contains_nothing_about_the_exporting_machine(exported):
    content = exported.read_bytes()
    for text in (str(Path(__file__).parents[3]), "heads.py", "stack_trace"):
        assert text.encode() not in content, text


def test_onnx_runtime_and_pytorch_agree_in_batches_of_any_size(exported, trained_run, crops):
    trained, embedder = load_network(trained_run), load_embedder(exported)
    expected = NetworkEmbedder(trained.network, trained.loss.score)(crops)
    for count in (1, 2, 7):
        actual = embedder(crops[:count])
        np.testing.assert_allclose(actual.embedding, expected.embedding[:count], atol=1e-4)
        np.testing.assert_allclose(actual.quality, expected.quality[:count], atol=1e-3)
        np.testing.assert_allclose(actual.uncertainty, expected.uncertainty[:count], atol=1e-3)
        log_scale = expected.extras["log_scale"][:count]
        np.testing.assert_allclose(actual.extras["log_scale"], log_scale, atol=1e-3)
        np.testing.assert_allclose(np.linalg.norm(actual.embedding, axis=1), 1, atol=1e-5)


def test_a_network_that_is_not_the_exported_one_fails_the_check(exported, trained_run, crops):
    trained = load_network(trained_run)
    check_parity(trained, load_embedder(exported), crops)
    with torch.no_grad():
        trained.network.heads["log_scale"][1].bias.add_(0.01)
    with pytest.raises(ModelError, match="qualities differ by up to 0"):
        check_parity(trained, load_embedder(exported), crops)
    with torch.no_grad():
        trained.network.embedding[0].weight.mul_(torch.rand_like(trained.network.embedding[0].weight))
    with pytest.raises(ModelError, match="minimum cosine"):
        check_parity(trained, load_embedder(exported), crops)


@pytest.mark.slow
def test_a_run_is_exported_with_the_average_of_its_weights_or_with_the_last(trained_run, exported, tmp_path, crops):
    recipe, state = load_checkpoint(trained_run / FILE)
    average = dict(state["network"])
    average["embedding.0.weight"] = average["embedding.0.weight"] * torch.linspace(0.1, 3, 16)[:, None]
    save_checkpoint(tmp_path / FILE, recipe, {**state, "average": average})
    for file, options in (("average.onnx", []), ("last.onnx", ["--last-weights"])):
        assert run("export", tmp_path, "--out", tmp_path / file, *options) == 0
    plain = load_embedder(exported)(crops).embedding
    np.testing.assert_allclose(load_embedder(tmp_path / "last.onnx")(crops).embedding, plain, atol=1e-5)
    assert np.abs(load_embedder(tmp_path / "average.onnx")(crops).embedding - plain).max() > 0.1


@pytest.mark.slow
def test_a_failed_check_leaves_no_file(trained_run, tmp_path, monkeypatch):
    def wrong(module, inputs, names, path):
        other = load_network(trained_run)
        with torch.no_grad():
            other.network.embedding[0].weight.neg_()
        original(export_module._ScoringModule(other, names).eval(), inputs, names, path)

    original = export_module.write_module
    monkeypatch.setattr(export_module, "write_module", wrong)
    with pytest.raises(ModelError, match="no file was written"):
        export_run(trained_run, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_embedding_only_has_one_output(trained_run, tmp_path, crops):
    parity = export_run(trained_run, tmp_path / "m.onnx", embedding_only=True).parity
    assert parity.quality_error is None
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["embedding"]
    # insightface recognizes graphs that include the input normalization by such names.
    first = [node.name for node in onnx.load(str(tmp_path / "m.onnx")).graph.node[:8]]
    assert not any(name.startswith(("Sub", "_minus", "Mul", "_mul")) for name in first)
    assert load_embedder(tmp_path / "m.onnx")(crops).quality is None


def test_thresholds_are_chosen_on_the_people_that_the_run_held_out(make_recipe, tmp_path):
    write_synthetic_faces(tmp_path / "faces", identities=8, images=6)
    recipe = make_recipe(
        f"data.train={tmp_path / 'faces'}",
        "data.name=f",
        "data.terms=t",
        "data.holdout_identities=4",
        "validation.pairs=10",
        "optim.lr=0.001",
    )
    train(recipe, tmp_path / "run")
    heldout = TrainingData(recipe).heldout
    assert heldout is not None
    exported = export_run(tmp_path / "run", tmp_path / "m.onnx")
    assert exported.uncalibrated == ""
    found = load_embedder(tmp_path / "m.onnx").description
    assert found == exported.description
    assert found.calibration is not None
    assert found.calibration.data_sha256 == hash_images(heldout).sha256
    assert (found.calibration.faces, found.calibration.identities) == (len(heldout), 4)
    assert list(found.thresholds) == ["0.99", "0.95", "0.9", "0.8"]
    # The same as those of the command on the same faces.
    for row in range(len(heldout)):
        person = tmp_path / "people" / heldout.key(row)
        person.parent.mkdir(parents=True, exist_ok=True)
        person.write_bytes(heldout.read(row))
    assert calibrate(tmp_path / "m.onnx", tmp_path / "people").description.thresholds == found.thresholds

    # People of other data are not used.
    trained = load_network(tmp_path / "run")
    write_synthetic_faces(tmp_path / "faces" / "more", identities=1, images=2, seed=1)
    assert "has changed since the training" in export_module._held_out(trained)[1]
    shutil.rmtree(tmp_path / "faces")
    assert "are not here" in export_module._held_out(trained)[1]


@pytest.mark.slow
def test_a_run_that_held_nobody_out_says_how_to_get_thresholds(trained_run, drawn_faces, tmp_path, capsys):
    command = ["export", trained_run, "--out", tmp_path / "m.onnx"]
    assert run(*command) == 0
    said = capsys.readouterr().err
    assert "no thresholds: the run held nobody out" in said
    assert f"facerts calibrate --model {tmp_path / 'm.onnx'} --data PEOPLE/" in said
    assert "# it has no match thresholds (for verify) and no quality thresholds (for --keep)" in said
    assert run(*command, "--data", drawn_faces, "--overwrite") == 0
    assert "calibrate" not in capsys.readouterr().err.partition("next:")[2]
    assert load_embedder(tmp_path / "m.onnx").description.thresholds


def test_a_run_stopped_after_a_few_steps_is_named_with_the_cause(make_recipe, tmp_path):
    recipe = make_recipe()
    learner = Learner(recipe, 4)
    # As with the averages of BatchNorms that a few steps have not yet moved to those of the layers.
    learner.network.heads["log_scale"][1].bias.data.fill_(1000)
    save_checkpoint(tmp_path / FILE, recipe, {"step": 4, "position": 4.0, **learner.state_dict()})
    with pytest.raises(ModelError) as caught:
        export_run(tmp_path, tmp_path / "m.onnx")
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}: the network's uncertainty is not a finite number; it has trained")
    assert "for 4 steps" in message
    assert "resume the run" in message
    assert not (tmp_path / "m.onnx").exists()
