"""``facerts evaluate`` of a training run, from the command line to result.json."""

import json

import numpy as np
import pytest

from facerts.cli.evaluate_options import CHECKPOINT
from facerts.datasets import open_source, pairs_from_identities
from facerts.datasets.bin_set import write_bin
from facerts.evaluation.baselines import CLASSIFIER_SCORES
from facerts.training.checkpoint import FILE
from tests.command import run

ALL = ["max_softmax", "max_logit", "odin:epsilon=0.002", "energy", "mc_dropout:passes=4", "ser_fiq:passes=4"]
SCORES = [part for score in [*ALL, "newton_temperature", "perturbed_quality"] for part in ("--score", score)]


@pytest.fixture(scope="module")
def pairs(drawn_faces, tmp_path_factory):
    """The synthetic faces as a .bin set."""
    benchmark = pairs_from_identities(open_source(drawn_faces), genuine=40, impostors=40, seed=0)
    images = [benchmark.images.read(int(row)) for row in benchmark.pairs.reshape(-1)]
    path = tmp_path_factory.mktemp("pairs") / "set.bin"
    write_bin(path, images, benchmark.same.tolist())
    return path


@pytest.mark.slow
def test_every_evaluation_reports_every_score(trained_run, pairs, drawn_faces, non_faces, tmp_path):
    arguments = [
        "--model",
        trained_run,
        *SCORES,
        "--score",
        f"ensemble:{trained_run / FILE}",
        "--out",
        tmp_path,
    ]
    assert run("evaluate", "verification", *arguments, "--data", pairs) == 0
    assert run("evaluate", "reject", *arguments, "--data", pairs, "--fmr", "0.05") == 0
    assert run("evaluate", "ood", *arguments, "--in", drawn_faces, "--out-of", non_faces) == 0
    assert run("evaluate", "corruptions", *arguments, "--data", drawn_faces, "--images", "2") == 0
    content = json.loads((tmp_path / "result.json").read_text())
    expected = ["quality", "norm", "sharpness", *CLASSIFIER_SCORES]
    assert content["model"]["method"] == "rts"
    assert len(content["model"]["sha256"]) == 64
    for kind, name in (("ood", "AUROC"), ("reject", "pAUC to 20%"), ("corruptions", "kept at 1")):
        (section,) = content["sections"][kind].values()
        found = [one["of"]["score"] for one in section["measures"] if one["name"] == name and "score" in one["of"]]
        assert found == expected
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert arrays["verification/set/ser_fiq"].shape == arrays["verification/set/names"].shape


def test_a_run_gives_the_results_of_its_export_and_a_score(trained_run, exported, pairs, tmp_path):
    areas = []
    for name, model in (("run", [trained_run / FILE, "--score", "energy"]), ("onnx", [exported])):
        command = ["evaluate", "verification", "--model", *model, "--data", pairs, "--out", tmp_path / name]
        assert run(*command) == 0
        content = json.loads((tmp_path / name / "result.json").read_text())
        measures = content["sections"]["verification"]["set"]["measures"]
        areas.append(next(one["value"] for one in measures if one["name"] == "AUROC"))
    assert areas[0] == pytest.approx(areas[1], abs=1e-3)
    with np.load(tmp_path / "run" / "arrays.npz") as arrays:
        assert arrays["verification/set/energy"].shape == arrays["verification/set/names"].shape
    assert CHECKPOINT == FILE


def test_scores_need_a_run(capsys, exported, trained_run, pairs, tmp_path):
    checkpoint, provider = ("--model", trained_run), ("--set", "provider=CPUExecutionProvider")
    for options, message in (
        (("--model", exported, "--score", "energy"), "needs class centers, which are only in a training run"),
        (
            ("--model", tmp_path / "table.npz", "--score", f"ensemble:{trained_run}"),
            "needs class centers, which are",
        ),
        ((*checkpoint, "--score", "enrgy"), "no score 'enrgy', did you mean 'energy'"),
        ((*checkpoint, *provider), "provider is for ONNX Runtime"),
        (("--model", tmp_path / "none.pt"), "no such file"),
    ):
        assert run("evaluate", "verification", "--data", pairs, "--out", tmp_path / "r", *options) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "r").exists()
