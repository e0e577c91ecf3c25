"""``facerts posthoc``: its two ways beside each other."""

from pathlib import Path

import numpy as np
import pytest

from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from facerts.embedding.onnx_embedder import OnnxQuality
from facerts.hub.find import find_model
from tests.command import printed_json, refused, run
from tests.foreign import write_description, write_embedder
from tests.shipped import write_model


@pytest.fixture
def models(tmp_path):
    """Options of a recognizer and of a quality."""
    theirs = write_description(write_embedder(tmp_path / "theirs.onnx"))
    return "--model", str(theirs), "--quality", str(write_model(tmp_path / "ours.onnx"))


def test_any_other_word_is_a_method(capsys):
    rest = ["--data", "faces", "--out", "o.onnx"]
    for words in (["rtz", "--model", "m.onnx"], ["--model", "m.onnx", "rtz"]):
        assert "no method 'rtz', did you mean 'rts'?" in refused(capsys, "posthoc", *words, *rest)


def test_graft_calibrates_both_on_the_same_faces(models, tmp_path, capsys):
    write_synthetic_faces(tmp_path / "faces", identities=25, images=4)
    out = tmp_path / "joined.onnx"
    summary = printed_json(capsys, "posthoc", "graft", *models, "--out", out, "--data", tmp_path / "faces")
    assert summary["quality_thresholds"] == ["0.99", "0.95", "0.9", "0.8"]
    assert "0.01" in summary["match_thresholds"]
    calibration = load_embedder(out).description.calibration
    assert (calibration.faces, calibration.identities) == (100, 25)
    assert summary["bytes"] == out.stat().st_size
    assert summary["largest_quality_error"] == 0


def test_the_quality_that_ships_is_grafted_unless_another_is_named(models, tmp_path, crops):
    out = tmp_path / "joined.onnx"
    assert run("posthoc", "graft", *models[:2], "--out", out) == 0
    expected = OnnxQuality(find_model("facerts-quality"))(crops)
    np.testing.assert_allclose(load_embedder(out)(crops).quality, expected, atol=1e-5)


def test_a_graft_that_is_refused_writes_nothing(models, tmp_path, capsys):
    (tmp_path / "faces" / "ann").mkdir(parents=True)
    (tmp_path / "faces" / "ann" / "a.jpg").write_bytes(b"no")
    out, before = tmp_path / "joined.onnx", Path(models[1]).read_bytes()
    assert run("posthoc", "graft", *models, "--out", out, "--data", tmp_path / "faces") == 2
    assert "no face in 1 images" in capsys.readouterr().err
    assert not out.exists()
    assert run("posthoc", "graft", *models, "--out", models[1], "--overwrite", "--data", tmp_path) == 2
    assert "it is one of the two models to join" in capsys.readouterr().err
    assert Path(models[1]).read_bytes() == before
