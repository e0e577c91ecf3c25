"""From images to a report by commands alone, as the README has them."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demo_runs_and_its_numbers_stand_above_chance(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    command = [sys.executable, str(ROOT / "demo" / "run.py"), "--out", str(out), "backbone.width=0.125"]
    ran = subprocess.run(
        [*command, "optim.epochs=0.5", "optim.milestones=[0.4]", "compute.threads=1"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    result = json.loads((out / "run" / "result.json").read_text())
    verification = result["verification"]["heldout"]
    assert verification["accuracy"]["ci95"][0] > 0.55
    assert verification["pairs"] == 2000
    assert set(result["ood"]["by"]) == {"quality", "norm", "sharpness"}
    rows = list(csv.DictReader((out / "scores.csv").open()))
    assert {Path(row["path"]).name for row in rows} >= {"astronaut_face.png", "chelsea.png"}
    assert all(row["error"] == "" and float(row["uncertainty"]) > 0 for row in rows)
    assert (out / "report.html").stat().st_size > 50_000
