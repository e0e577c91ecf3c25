"""eval/head_settings.py, on drawn people."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from facerts.datasets import open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from tests.foreign import write_description, write_embedder
from tests.scripts import run_script

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[1] / "eval" / "head_settings.py"
NUMBER = r"[+-]?\d\.\d{4}"


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads") / "people"
    write_synthetic_faces(folder, identities=20, images=5, seed=8)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_embedder(tmp_path_factory.mktemp("model") / "plain.onnx", size=8)
    write_description(path)
    return path


def tables(*arguments: object) -> list[dict[str, list[str]]]:
    """The rows of the table of means and of that of differences, by head."""
    ran = run_script(SCRIPT, *arguments)
    assert ran.returncode == 0, ran.stderr
    lines = [re.split(r" *\| *", line.strip("| ")) for line in ran.stdout.splitlines() if line[:1] == "|"]
    rows = [line for line in lines if line[0] not in ("head", "---")]
    half = next(number for number, row in enumerate(rows[1:], 1) if row[0] == rows[0][0])
    return [{name: cells for name, *cells in part} for part in (rows[:half], rows[half:])]


def test_heads_are_compared_seed_by_seed(
    people: Path, model: Path, drawn_things: Path, tmp_path: Path
) -> None:
    data = ["--data", people, "--heldout", people, "--in", people, "--out-of", drawn_things]
    options = ["--model", model, *data, "--seeds", 1, 2, "--epochs", 1, "--views", 1, "--out", tmp_path]
    figure = tmp_path / "heads.svg"
    heads = ["first=rts", "again=rts", "none=rts temperature=none"]
    means, differences = tables(*heads, *options, "--figure", figure)
    assert all(f">{name}<" in figure.read_text() for name in ("again", "none", "degraded, AUROC"))
    assert list(means) == ["norm of the embedder", "first", "again", "none"]
    assert list(differences) == ["norm of the embedder", "again", "none"]
    assert means["again"] == means["first"]
    assert differences["again"] == ["2", *["+0.0000 [+0.0000, +0.0000]"] * 3]
    for row in (means["none"], differences["none"]):
        assert all(re.fullmatch(rf"{NUMBER} \[{NUMBER}, {NUMBER}\]", cell) for cell in row[1:])
    assert means["none"] != means["first"]
    first, none = (
        np.array([float(cell.split()[0]) for cell in means[name][1:]]) for name in ("first", "none")
    )
    found = [float(cell.split()[0]) for cell in differences["none"][1:]]
    np.testing.assert_allclose(found, none - first, atol=1.01e-4)

    trained = (tmp_path / "heads.json").read_bytes()
    # Only the third seed is new, and nothing of the others changes.
    options[options.index(2)] = 3
    means, _ = tables("first=rts", "none=rts temperature=none", *options)
    assert means["first"][0] == "2"
    heads = [json.loads(text)["numbers"] for text in (trained, (tmp_path / "heads.json").read_bytes())]
    assert (len(heads[0]), len(heads[1])) == (4, 6)
    assert heads[0].items() <= heads[1].items()
    # Of other images nothing is known.
    tables("first=rts", *options[:-1], tmp_path, "--exclude-out-of", "*[0-4].*")
    assert len(json.loads((tmp_path / "heads.json").read_bytes())["numbers"]) == 2

    embedder = load_embedder(model)
    faces, others = (
        embedder(np.stack([source.crop(index) for index in range(len(source))])).norm
        for source in (open_source(people), open_source(drawn_things))
    )
    auroc = np.mean(faces[:, None] > others) + np.mean(faces[:, None] == others) / 2
    assert means["norm of the embedder"][:2] == ["1", f"{auroc:.4f}"]


@pytest.mark.parametrize(
    ("head", "message"),
    [("rts", "must be NAME=METHOD"), ("a=rtz", "did you mean 'rts'"), ("a=rts kl=1", "no setting 'kl'")],
)
def test_a_wrong_head_is_refused(head: str, message: str, people: Path, model: Path, tmp_path: Path) -> None:
    data = ["--data", people, "--heldout", people, "--in", people, "--out-of", people]
    ran = run_script(SCRIPT, head, "--model", model, *data, "--out", tmp_path / "out")
    assert ran.returncode == 2
    assert message in ran.stderr
    assert not (tmp_path / "out").exists()
