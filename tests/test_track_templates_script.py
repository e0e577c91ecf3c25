"""The script that measures templates of tracks, on drawn people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from facerts.datasets.synthetic import write_synthetic_faces
from tests.scripts import EVAL, load_script, run_script

script = load_script("track_templates", EVAL)


def test_every_weighting_has_its_error_rates(tmp_path: Path) -> None:
    write_synthetic_faces(tmp_path / "people", identities=5, images=4)
    lines = run_script(
        EVAL / "track_templates.py", "--people", tmp_path / "people", "--seeds", "1"
    ).stdout.splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == [*script.WEIGHTS, "single faces"]


def test_the_rates_are_those_of_the_cosines(capsys: pytest.CaptureFixture[str]) -> None:
    class Scorer:
        def match_threshold(self, fmr: float) -> float:
            return 0.5

    # Two seeds of 40 people: one of the genuine pairs of a seed is below all others, and 6 impostor pairs match.
    scores = np.full((2, 40, 40), 0.1)
    scores[:, np.arange(40), np.arange(40)] = 0.9
    scores[0, 3, 3] = 0.0
    scores[1, 0, 1:7] = 0.6
    script.print_tables(Scorer(), {"single faces": scores})
    row = capsys.readouterr().out.splitlines()[-1]
    fnmr, fmr = (cell.split("[")[0].strip() for cell in row.strip("| ").split("|")[1:])
    assert float(fnmr) == pytest.approx(100 / 80, abs=0.01)
    assert float(fmr) == pytest.approx(100 * 6 / (2 * 40 * 39), abs=0.001)
