"""``facerts evaluate`` of a training run, from the command line to result.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from facerts.benchmarks import pairs_from_identities
from facerts.benchmarks.bin_sets import write_bin
from facerts.cli.evaluate import CHECKPOINT
from facerts.datasets import open_source
from facerts.evaluation.baselines import CLASSIFIER_SCORES
from facerts.training.checkpoint import FILE
from tests.cli.test_cli import run

ALL = ["max_softmax", "max_logit", "odin:epsilon=0.002", "energy", "mc_dropout:passes=4", "ser_fiq:passes=4"]
SCORES = [part for score in [*ALL, "newton_temperature", "perturbed_quality"] for part in ("--score", score)]


@pytest.fixture(scope="module")
def pairs(drawn_faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The synthetic faces as a .bin set."""
    benchmark = pairs_from_identities(open_source(drawn_faces), genuine=40, impostors=40, seed=0)
    images = [benchmark.images.read(int(row)) for row in benchmark.pairs.reshape(-1)]
    path = tmp_path_factory.mktemp("pairs") / "set.bin"
    write_bin(path, images, benchmark.same.tolist())
    return path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The error message of a command."""
    capsys.readouterr()
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return " ".join(error.split())


def test_every_score_is_reported_with_those_of_the_model(
    trained_run: Path, pairs: Path, drawn_faces: Path, drawn_things: Path, tmp_path: Path
) -> None:
    arguments = ["--model", trained_run, *SCORES, "--ensemble", trained_run / FILE, "--out", tmp_path]
    assert run("evaluate", "verification", *arguments, "--data", pairs) == 0
    assert run("evaluate", "reject", *arguments, "--data", pairs, "--fmr", "0.05") == 0
    assert run("evaluate", "ood", *arguments, "--in", drawn_faces, "--out-of", drawn_things) == 0
    assert run("evaluate", "corruptions", *arguments, "--data", drawn_faces, "--images", "2") == 0
    content = json.loads((tmp_path / "result.json").read_text())
    expected = ["quality", "norm", "sharpness", *CLASSIFIER_SCORES]
    assert content["model"]["method"] == "rts"
    assert len(content["model"]["sha256"]) == 64
    assert list(content["ood"]["by"]) == expected
    assert list(dict.fromkeys(curve["by"] for curve in content["reject"]["set"])) == expected
    assert list(content["corruptions"]["faces"]["kinds"]["blur"]["by"]) == expected
    with np.load(tmp_path / "arrays.npz") as arrays:
        # An ensemble of the run with itself gives the scores of the run.
        np.testing.assert_allclose(
            arrays["ood/faces/ensemble"], arrays["ood/faces/max_softmax"], rtol=1e-4, atol=1e-6
        )
        assert arrays["verification/set/ser_fiq"].shape == arrays["verification/set/names"].shape


def test_a_run_and_its_export_give_the_same_results(
    trained_run: Path, exported: Path, pairs: Path, tmp_path: Path
) -> None:
    areas = []
    for name, model in (("run", trained_run / FILE), ("onnx", exported)):
        assert (
            run("evaluate", "verification", "--model", model, "--data", pairs, "--out", tmp_path / name) == 0
        )
        content = json.loads((tmp_path / name / "result.json").read_text())
        areas.append(content["verification"]["set"]["auroc"])
    assert areas[0] == pytest.approx(areas[1], abs=1e-3)


def test_scores_need_a_run(
    capsys: pytest.CaptureFixture[str], exported: Path, trained_run: Path, pairs: Path, tmp_path: Path
) -> None:
    command = ("evaluate", "verification", "--data", pairs, "--out", tmp_path / "r")
    for option in (["--score", "energy"], ["--ensemble", trained_run]):
        for model in (["--model", exported], ["--embeddings", tmp_path / "table.npz"]):
            sentence = refused(capsys, *command, *model, *option)
            assert "need class centers, which are only in a training run" in sentence
    model = ("--model", trained_run)
    assert "no score 'enrgy', did you mean 'energy'" in refused(capsys, *command, *model, "--score", "enrgy")
    provider = refused(capsys, *command, *model, "--provider", "CPUExecutionProvider")
    assert "--provider is for ONNX Runtime" in provider
    assert "no such file" in refused(capsys, *command, "--model", tmp_path / "none.pt")
    assert not (tmp_path / "r").exists()


def test_a_checkpoint_is_recognized_by_its_name() -> None:
    assert CHECKPOINT == FILE
