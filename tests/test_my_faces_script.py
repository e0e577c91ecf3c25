"""The script that measures what adapting the model that ships gains."""

from __future__ import annotations

from pathlib import Path

import pytest

from facerts.datasets.synthetic import write_synthetic_faces
from tests.scripts import EVAL, cells_of, run_script


@pytest.mark.parametrize("strangers", [False, True])
def test_each_draw_is_adapted_and_compared_on_other_people(tmp_path: Path, strangers: bool) -> None:
    write_synthetic_faces(tmp_path / "people", identities=25, images=3, seed=5)
    options = ["--count", "10", "12", "--draws", "2", "--fmr", "0.1", "--most", "12"]
    if strangers:
        # These have too few images to be drawn.
        write_synthetic_faces(tmp_path / "people", identities=5, images=1, first_identity=25)
        write_synthetic_faces(tmp_path / "strangers", identities=12, images=3, first_identity=50)
        options += ["--least", "3", "--test", str(tmp_path / "strangers")]
    done = run_script(EVAL / "my_faces.py", "--people", tmp_path / "people", *options)
    assert done.returncode == 0, done.stderr
    header, *rows = cells_of(done.stdout)
    assert header[:5] == ["people", "images", "FMR", "facerts-small", "my_faces"]
    assert [row[:3] for row in rows] == [["10", "30", "0.1"], ["12", "36", "0.1"]]
    for row in rows:
        before, after, difference = float(row[3]), float(row[4]), float(row[5].split()[0])
        # The mean of rounded numbers.
        assert abs(after - before - difference) < 2e-4
        assert difference != 0
        assert row[6].endswith(" of 2")
        assert row[8] == "–"
