"""eval/recut_qualities.py, on drawn faces."""

from __future__ import annotations

import csv
from pathlib import Path

import cv2
import pytest

from facerts.datasets import open_source
from facerts.embedding import load_embedder
from facerts.evaluation.fiqa.score_table import read_scores
from facerts.hub.find import find_model
from tests.scripts import EVAL, run_script

SCRIPT = EVAL / "recut_qualities.py"


@pytest.fixture(scope="module")
def table(non_faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recut") / "recut.csv"
    done = run_script(SCRIPT, non_faces, "--quality", "small=facerts-small", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "24 images; small jittered, small tight, small loose" in done.stdout
    return out


def test_each_image_has_the_quality_of_its_crop_cut_anew(table: Path, non_faces: Path) -> None:
    with table.open(encoding="utf-8", newline="") as file:
        rows = {row["image"]: row for row in csv.DictReader(file)}
    source = open_source(non_faces)
    assert list(rows) == [source.key(index) for index in range(len(source))]
    small = load_embedder(find_model("facerts-small"))
    for index in (0, 7, 23):
        for name, zoom in (("tight", 1.15), ("loose", 0.85)):
            matrix = cv2.getRotationMatrix2D((55.5, 55.5), 0, zoom)
            crop = cv2.warpAffine(source.crop(index), matrix, (112, 112), borderMode=cv2.BORDER_REFLECT_101)
            expected = float(small(crop[None]).quality[0])
            assert float(rows[source.key(index)][f"small {name}"]) == pytest.approx(expected, abs=2e-3)


def test_the_evaluation_reads_each_change_as_a_quality(table: Path) -> None:
    assert read_scores(table, "small jittered").columns == ["small jittered"]


def test_a_list_of_scores_is_refused(table: Path, non_faces: Path, tmp_path: Path) -> None:
    done = run_script(SCRIPT, non_faces, "--quality", f"{table}:small tight", "--out", tmp_path / "no.csv")
    assert done.returncode == 2
    assert "a list of scores says nothing about crops that are cut anew" in done.stderr
    assert not (tmp_path / "no.csv").exists()
