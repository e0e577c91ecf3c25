"""The script that measures what adapting the model that ships gains."""

from __future__ import annotations

from pathlib import Path

from facerts.datasets.synthetic import write_synthetic_faces
from tests.scripts import EVAL, cells_of, run_script


def test_each_draw_is_adapted_and_compared_on_other_people(tmp_path: Path) -> None:
    write_synthetic_faces(tmp_path / "people", identities=40, images=3, seed=5)
    options = ["--count", "10", "15", "--draws", "2", "--fmr", "0.1", "--most", "20"]
    done = run_script(EVAL / "my_faces.py", "--people", tmp_path / "people", *options)
    assert done.returncode == 0, done.stderr
    header, *rows = cells_of(done.stdout)
    assert header[:5] == ["people", "images", "FMR", "facerts-small", "my_faces"]
    assert [row[:3] for row in rows] == [["10", "30", "0.1"], ["15", "45", "0.1"]]
    for row in rows:
        before, after, difference = float(row[3]), float(row[4]), float(row[5].split()[0])
        # The mean of rounded numbers.
        assert abs(after - before - difference) < 2e-4
        assert difference != 0
        assert row[6].endswith(" of 2")
        assert row[8] == "–"
