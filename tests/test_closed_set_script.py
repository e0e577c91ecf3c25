"""eval/closed_set.py, on synthetic people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

pytest.importorskip("torch")

import torch

from facerts.datasets import open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.training.classifier_scores import load_run
from facerts.training.loop import train
from facerts.training.recipe import load_recipe
from tests.scripts import EVAL, cells_of, load_script, run_script

SCRIPT = EVAL / "closed_set.py"


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the split images of 20 people with five images, and of one with two."""
    folder = tmp_path_factory.mktemp("closed")
    write_synthetic_faces(folder / "people", identities=21, images=5, seed=8)
    for image in sorted((folder / "people").glob("*/*"))[-3:]:
        image.unlink()
    ran = run_script(SCRIPT, "split", folder / "people", "--out", folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        f"{folder / 'train.tar'}: 82 images of 21 people",
        f"{folder / 'test.tar'}: 20 images of 20 people",
    ]
    return folder


@pytest.fixture(scope="module")
def runs(split: Path) -> Path:
    """Short runs: CE with two seeds, with wrong labels with one, and SupCon."""
    fields = {
        "name": "tiny",
        "data": {"name": "drawn", "terms": "none", "train": str(split / "train.tar"), "workers": 0},
        "backbone": {"name": "mobilefacenet", "width": 0.125, "embedding_size": 16},
        "method": {"name": "arcface", "margin": 0, "logit_scale": 10},
        "optim": {"epochs": 8, "batch_size": 16, "lr": 0.1},
        "compute": {"device": "cpu", "precision": "fp32", "threads": 1},
    }
    (split / "tiny.yaml").write_text(yaml.safe_dump(fields))
    settings = {
        "ce_seed1": ["seed=1"],
        "ce_seed2": ["seed=2"],
        "ce_noise_seed1": ["data.label_noise=0.5"],
        "supcon_seed1": ["method=supcon", "optim.epochs=1"],
    }
    for name, overrides in settings.items():
        train(load_recipe(split / "tiny.yaml", overrides), split / "runs" / name)
    return split / "runs"


def embeddings(run: Path, source: object) -> np.ndarray:
    return load_run(run)(np.stack([source.crop(index) for index in range(len(source))])).embedding


def test_the_held_out_image_is_in_no_training_set(split: Path) -> None:
    train, test = (open_source(split / name) for name in ("train.tar", "test.tar"))
    parts = [{source.key(index) for index in range(len(source))} for source in (train, test)]
    everything = open_source(split / "people")
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == {everything.key(index) for index in range(len(everything))}
    assert np.bincount(test.labels).tolist() == [1] * 20
    # Which image is random.
    assert len({key[-6:] for key in parts[1]}) > 1


def test_accuracy_is_that_of_a_loop_over_images(split: Path, runs: Path) -> None:
    train, test = (open_source(split / name) for name in ("train.tar", "test.tar"))
    ran = run_script(
        SCRIPT, "table", runs, split / "test.tar", "CE=ce", "its means=ce:means", "ce_noise", "supcon:means"
    )
    assert ran.returncode == 0, ran.stderr
    header, *rows = cells_of(ran.stdout)
    assert header[1:] == ["seeds", "accuracy", "minus CE", "ECE", "γ"]
    shown = {name: cells for name, *cells in rows}
    assert list(shown) == ["CE", "its means", "ce_noise", "supcon:means"]
    learned, means = [], []
    for seed in (1, 2):
        run = runs / f"ce_seed{seed}"
        weight = torch.load(run / "checkpoint.pt")["centers"]["weight"].numpy()
        vectors = embeddings(run, train)
        mean = np.stack([vectors[train.labels == label].mean(axis=0) for label in range(21)])
        for centers, found in ((weight, learned), (mean, means)):
            unit = centers / np.linalg.norm(centers, axis=1, keepdims=True)
            nearest = [train.identities[int(np.argmax(unit @ row))] for row in embeddings(run, test)]
            found.append(np.mean([nearest[i] == test.identities[test.labels[i]] for i in range(len(test))]))
    assert 5 < 100 * np.mean(learned) < 100
    assert shown["CE"][:3:2] == ["2", "–"]
    assert shown["CE"][1].startswith(f"{100 * np.mean(learned):.2f} [")
    assert shown["its means"][1].startswith(f"{100 * np.mean(means):.2f} [")
    assert shown["its means"][2].startswith(f"{100 * (np.mean(means) - np.mean(learned)):+.2f} [")


def test_means_are_of_the_labels_that_the_run_was_given(split: Path, runs: Path) -> None:
    means = run_script(SCRIPT, "table", runs, split / "test.tar", "ce_noise:means", "ce:means")
    (_, *noisy), (_, *clean) = cells_of(means.stdout)[1:]
    assert float(noisy[1].split()[0]) < float(clean[1].split()[0])


@pytest.mark.parametrize(
    ("row", "message"),
    [("supcon", "supcon learns no class centers; add :means"), ("c", "no c_seedN with a checkpoint.pt")],
)
def test_rows_that_classify_nothing_are_refused(split: Path, runs: Path, row: str, message: str) -> None:
    ran = run_script(SCRIPT, "table", runs, split / "test.tar", row)
    assert ran.returncode == 2
    assert message in ran.stderr


def test_strangers_are_refused(runs: Path, tmp_path: Path) -> None:
    write_synthetic_faces(tmp_path / "strangers", identities=30, images=1, seed=8)
    ran = run_script(SCRIPT, "table", runs, tmp_path / "strangers", "ce")
    assert ran.returncode == 2
    assert "was trained on 21 people, but" in ran.stderr


def test_the_scale_is_that_of_the_drawn_labels() -> None:
    script, random = load_script("closed_set"), torch.Generator().manual_seed(0)
    cosines = 2 * torch.rand(20_000, 6, generator=random) - 1
    labels = (7 * cosines).softmax(dim=1).multinomial(1, generator=random).squeeze(1)
    assert script.softmax_scale(cosines, labels) == pytest.approx(7, rel=0.03)


def test_a_calibration_error_worked_out_by_hand() -> None:
    script = load_script("closed_set")
    # Three of 15 bins: 0.02 and 0.05, one right; 0.5, wrong; 1.0, right.
    confidence, correct = np.array([0.02, 0.05, 0.5, 1.0]), np.array([True, False, False, True])
    assert script.calibration_error(confidence, correct) == pytest.approx((0.93 + 0.5 + 0) / 4)
