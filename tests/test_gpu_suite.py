import json
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import TOOLS, load_script, run_script

SUITE = TOOLS / "gpu_suite.py"


def suite(out: Path, *arguments: object) -> tuple[int, str, dict[str, Any]]:
    """Exit status, output and suite.json."""
    done = run_script(SUITE, "--rehearse", "--out", out, *arguments)
    file = out / "suite.json"
    return done.returncode, done.stdout + done.stderr, json.loads(file.read_text()) if file.exists() else {}


@pytest.mark.slow
def test_every_item_runs_in_a_rehearsal(tmp_path):
    status, output, found = suite(tmp_path, "--budget", "1h")
    assert status == 0, output
    assert {name: item["status"] for name, item in found["items"].items()} == dict.fromkeys(found["items"], "done")
    results = {name: item["result"] for name, item in found["items"].items()}
    # One thread each, so the CPU agrees with itself to the last bit.
    same = results["same as on the CPU"].values()
    assert {method[value] for method in same for value in ("loss", "weights")} == {0.0}
    assert all(0 < method["rounding"] < 0.2 for method in same)
    assert len(same) >= 14
    resumed = results["resume"]
    assert 0 < resumed["resumed after"] < resumed["steps"]
    assert resumed["two runs"] == resumed["with a resume"] == 0.0
    assert results["first steps"]["largest relative difference"] == 0.0
    scored = results["ONNX Runtime"]
    assert set(scored["images/s, CPUExecutionProvider"]) == {"1", "16", "64"}
    assert scored["largest difference of quality"] == 0.0
    assert results["two processes"] == {"trained": True}
    page = (tmp_path / "summary.md").read_text()
    assert "## Training steps" in page
    assert "| plain loop, iresnet50" in page
    assert "| images/s, CPUExecutionProvider |" in page
    assert "the numbers mean nothing" in page
    assert "reached" not in page


@pytest.mark.slow
def test_a_second_command_goes_on_where_the_first_stopped(tmp_path):
    only = ("--only", "machine", "classes, 2,")
    assert suite(tmp_path, "--budget", "1s", *only)[2]["items"]["machine"]["status"] == "did not fit"
    status, output, found = suite(tmp_path, "--budget", "5m", "--only", "machine")
    assert status == 0
    assert found["items"]["machine"]["status"] == "done"
    assert found["items"]["classes, 2,000,000 identities"]["status"] == "did not fit"
    status, output, found = suite(tmp_path, "--budget", "5m", *only)
    assert "machine: done before" in output
    assert found["items"]["classes, 2,000,000 identities"]["status"] == "done"
    page = (tmp_path / "summary.md").read_text()
    assert "| in chunks |" in page


def test_what_is_missing_and_what_failed_is_said(tmp_path, monkeypatch):
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'tensorboard'\")")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    out = tmp_path / "out"
    status, _, found = suite(out, "--budget", "5m", "--only", "machine")
    assert status == 0
    assert found["items"]["machine"]["missing"] == "tensorboard"
    assert "| machine | needs tensorboard |" in (out / "summary.md").read_text()
    (packages / "torch.py").write_text("raise ValueError('a | broken card')")
    status, _, found = suite(out, "--budget", "5m", "--only", "machine")
    assert status == 1
    assert found["items"]["machine"]["status"] == "failed"
    assert "failed: ValueError: a \\| broken card" in (out / "summary.md").read_text()


def test_an_item_that_does_not_exist_and_a_wrong_budget_are_refused(tmp_path):
    status, _, found = suite(tmp_path, "--budget", "twenty")
    assert status == 2
    assert found == {}
    assert suite(tmp_path, "--budget", "5m", "--only", "coffee")[2] == {}


def test_goals_are_judged_by_the_results():
    suite_script = load_script("gpu_suite", TOOLS)
    steps = {
        "learners": [{"images_per_s": 900.0, "mib": 1.0, "share_of_product": 0.5}] * 2,
        "ratio": {"median": 0.6, "quartiles": [0.5, 0.7], "pairs": 40},
    }
    sizes = {"mib": 6_000.0, "base_mib": 4_000.0, "ms": 3.0}
    rows = [{"identities": 2_000_000, "implementation": "in chunks", **sizes}]
    results = {
        "plain loop, iresnet50": steps,
        "not compiled, iresnet100, batch 256": steps,
        "resume": {"two runs": 0.0, "with a resume": 2e-5},
        "ONNX Runtime": {"1 - smallest cosine": 1e-5, "largest difference of quality": 2e-4},
        "ArcFace, iresnet100, batch 256": {**steps, "ratio": {**steps["ratio"], "median": 1.03}},
        "classes, 2,000,000 identities": {"rows": rows},
        "waits": {"rts": 0.0, "dul": 1.5},
        "same as on the CPU": {
            "rts": {"loss": 1e-7, "weights": 4e-3, "rounding": 2e-3},
            "dul": {"loss": 3e-5, "weights": 6e-2, "rounding": 5e-3},
        },
    }
    lines = suite_script.goal_table(results)[2:]
    assert [line.strip("| ").split(" | ")[2:] for line in lines] == [
        ["3.0e-05", "no"],
        ["12.0 times", "no"],
        ["1.5", "no"],
        ["1.67 times", "yes"],
        ["1.030 of the time", "no"],
        ["20.0 times", "no"],
        ["2.0e-04", "yes"],
        ["10.49 GB", "no"],
        ["50.0%", "yes"],
    ]
    assert all("| not measured |" in line for line in suite_script.goal_table({})[2:])
