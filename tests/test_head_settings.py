"""eval/head_settings.py, on synthetic people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from facerts.datasets import open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from tests.foreign import write_description, write_embedder
from tests.scripts import EVAL, cells_of, run_script

pytest.importorskip("torch")
SCRIPT = EVAL / "head_settings.py"
FIRST, AGAIN, NONE = "first=rts", "again=rts", "none=rts temperature=none"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an embedder and the faces of 20 people."""
    folder = tmp_path_factory.mktemp("heads")
    write_synthetic_faces(folder / "people", identities=20, images=5, seed=8)
    write_description(write_embedder(folder / "plain.onnx", size=8))
    return folder


def tables(files: Path, non_faces: Path, *arguments: object) -> list[dict[str, list[str]]]:
    """The rows of the table of means and of that of differences, by head."""
    people = files / "people"
    data = ["--data", people, "--heldout", people, "--in", people, "--out-of", non_faces]
    options = ["--model", files / "plain.onnx", *data, "--epochs", 1, "--views", 1]
    ran = run_script(SCRIPT, *arguments, *options)
    assert ran.returncode == 0, ran.stderr
    rows = [row for row in cells_of(ran.stdout) if row[0] != "head"]
    half = next(number for number, row in enumerate(rows[1:], 1) if row[0] == rows[0][0])
    return [{name: cells for name, *cells in part} for part in (rows[:half], rows[half:])]


def test_heads_are_compared_seed_by_seed(files: Path, non_faces: Path, tmp_path: Path) -> None:
    figure = tmp_path / "heads.svg"
    common = ("--out", tmp_path, "--figure", figure)
    means, differences = tables(files, non_faces, FIRST, AGAIN, NONE, "--seeds", 1, 2, *common)
    assert all(f">{name}<" in figure.read_text() for name in ("again", "none", "degraded, AUROC"))
    assert list(means) == ["norm of the embedder", "first", "again", "none"]
    assert list(differences) == ["norm of the embedder", "again", "none"]
    assert means["again"] == means["first"]
    assert differences["again"] == ["2", *["+0.0000 [+0.0000, +0.0000]"] * 3]
    first, none, difference = (
        np.array([float(cell.split()[0]) for cell in cells[1:]])
        for cells in (means["first"], means["none"], differences["none"])
    )
    np.testing.assert_allclose(difference, none - first, atol=1.01e-4)
    embedder = load_embedder(files / "plain.onnx")
    faces, others = (
        embedder(np.stack([source.crop(index) for index in range(len(source))])).norm
        for source in (open_source(files / "people"), open_source(non_faces))
    )
    auroc = np.mean(faces[:, None] > others) + np.mean(faces[:, None] == others) / 2
    assert means["norm of the embedder"][:2] == ["1", f"{auroc:.4f}"]


@pytest.mark.slow
def test_what_was_measured_is_kept_for_the_same_images(files: Path, non_faces: Path, tmp_path: Path) -> None:
    def heads() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / "heads").iterdir()}

    tables(files, non_faces, FIRST, NONE, "--seeds", 1, 2, "--out", tmp_path)
    before = heads()
    # Only the third seed is new, and nothing of the others changes.
    means, _ = tables(files, non_faces, FIRST, NONE, "--seeds", 1, 3, "--out", tmp_path)
    assert means["first"][0] == "2"
    assert (len(before), len(heads())) == (4, 6)
    assert before.items() <= heads().items()
    # Of other images nothing is known.
    tables(files, non_faces, FIRST, "--seeds", 1, 3, "--out", tmp_path, "--exclude-out-of", "*[0-4].*")
    assert len(heads()) == 8


@pytest.mark.parametrize(
    ("head", "message"),
    [("rts", "must be NAME=METHOD"), ("a=rtz", "did you mean 'rts'"), ("a=rts kl=1", "no setting 'kl'")],
)
def test_a_wrong_head_is_refused(head: str, message: str, files: Path, tmp_path: Path) -> None:
    people = files / "people"
    data = ["--data", people, "--heldout", people, "--in", people, "--out-of", people]
    ran = run_script(SCRIPT, head, "--model", files / "plain.onnx", *data, "--out", tmp_path / "out")
    assert ran.returncode == 2
    assert message in ran.stderr
    assert not (tmp_path / "out").exists()
