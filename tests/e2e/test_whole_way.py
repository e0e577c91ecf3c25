"""From images to a report by commands alone, as the README has them."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from facerts import load
from facerts.evaluation.measure import Evaluation

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demo_runs_and_its_numbers_stand_above_chance(tmp_path):
    out = tmp_path / "demo"
    # Short, so that names are not wrapped in the table.
    command = [sys.executable, str(ROOT / "demo" / "run.py"), "--out", out.name]
    # Half of the steps. After fewer, the quality is not above chance.
    ran = subprocess.run(
        [*command, "optim.epochs=4", "compute.threads=1", "compute.precision=fp32"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    result = json.loads((out / "run" / "result.json").read_text())
    verification, reject, ood = (
        Evaluation.model_validate(section)
        for kind in ("verification", "reject", "ood")
        for section in result["sections"][kind].values()
    )
    accuracy = verification.measure("accuracy")
    assert accuracy.ci95[0] > 0.8
    assert accuracy.n == 4000
    assert {one.of["score"] for one in ood.measures} == {"quality", "norm", "sharpness"}
    # After half of the steps, one seed has 0.775, the next 0.893.
    assert ood.measure("AUROC", score="quality").ci95[0] > 0.7
    left, nothing = (reject.measure(name, score="quality") for name in ("pAUC to 95%", "0% left out"))
    assert left.ci95[1] < nothing.value
    for sentence in ("Verification: ", "Rejection: without the 10% of pairs", "Non-faces: quality tells"):
        assert sentence in ran.stdout
    assert (out / "report.html").stat().st_size > 50_000
    # The model that ships decides about real images: good faces are accepted, poor ones and what is none are not.
    rows = load(threads=1).score(sorted((out / "real").iterdir()), keep=0.95)
    accepted = {Path(row.path).stem: row.accepted for row in rows}
    assert [name for name in accepted if accepted[name]] == ["astronaut", "astronaut_soft"]
    assert len(accepted) == 10
    assert all(f"{name}.png" in ran.stdout for name in accepted)


def test_the_commands_of_the_demo_end_it_when_they_fail(tmp_path):
    demo = runpy.run_path(str(ROOT / "demo" / "run.py"))
    with pytest.raises(SystemExit, match="2"):
        demo["facerts"]("score", tmp_path / "none.jpg", "--keep", "never")
