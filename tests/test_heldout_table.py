"""eval/heldout_table.py, on drawn people."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from facerts.datasets import open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from tests.foreign import write_description, write_embedder
from tests.scripts import EVAL, cells_of, run_script

pytest.importorskip("torch")
SCRIPT = EVAL / "heldout_table.py"


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heldout") / "people"
    write_synthetic_faces(folder, identities=20, images=5, seed=4)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    files = [
        write_embedder(folder / f"{name}.onnx", size=size, seed=seed)
        for name, size, seed in (("one", 6, 0), ("two", 9, 1))
    ]
    for file in files:
        write_description(file)
    return files


def table(*arguments: object) -> dict[str, list[str]]:
    """The script's rows by their labels."""
    done = run_script(SCRIPT, *arguments, "--replicates", 50)
    assert done.returncode == 0, done.stderr
    return {label: cells for label, *cells in cells_of(done.stdout)[1:]}


def tar_of_all_pairs(cosines: np.ndarray, labels: np.ndarray, far: float) -> float:
    """By sorting every pair's cosine."""
    rows, columns = np.triu_indices(len(labels), 1)
    same, scores = labels[rows] == labels[columns], cosines[rows, columns]
    impostors = np.sort(scores[~same])[::-1]
    return 100 * float(np.mean(scores[same] > impostors[int(far * len(impostors))]))


def test_two_models_together_are_the_mean_of_their_cosines(people: Path, models: list[Path]) -> None:
    rows = table(
        models[0], f"same={models[0]}", f"both={models[0]}+{models[1]}", "--data", people, "--far", "0.05"
    )
    assert list(rows) == ["one", "same", "both"]
    assert rows["one"][2] == "–"
    assert rows["same"][2] == "[+0.00, +0.00]"
    assert rows["same"][:2] == rows["one"][:2]
    source = open_source(people)
    crops = np.stack([source.crop(index) for index in range(len(source))])
    cosines = [(e := load_embedder(model)(crops).embedding.astype(np.float64)) @ e.T for model in models]
    for label, wanted in (("one", cosines[0]), ("both", (cosines[0] + cosines[1]) / 2)):
        tar = float(rows[label][1].split()[0])
        assert tar == pytest.approx(tar_of_all_pairs(wanted, source.labels, 0.05), abs=0.11), label


def test_all_directions_keep_every_cosine_and_few_do_not(
    people: Path, models: list[Path], tmp_path: Path
) -> None:
    rows = table(
        f"{models[0]}+{models[1]}", "--data", people, "--far", "0.05", "--flip",
        "--project-on", people, "--sizes", 1, 15, "--cache", tmp_path,
    )  # fmt: skip
    whole, one, all_of_them = rows.values()
    assert list(rows) == ["one+two", "one+two, 1 directions", "one+two, 15 directions"]
    assert all_of_them[1] == whole[1]
    assert one[1] != whole[1]


def test_images_without_identities_are_refused(people: Path, models: list[Path], tmp_path: Path) -> None:
    shutil.copy(next(people.rglob("*.jpg")), tmp_path)
    done = run_script(SCRIPT, models[0], "--data", tmp_path)
    assert done.returncode == 2
    assert "use a source with identities" in done.stderr
