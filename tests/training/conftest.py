"""Recipes that train in seconds on a small synthetic data set."""

import pytest
import yaml

from facerts.datasets.synthetic import write_synthetic_faces
from facerts.training.loop import train
from facerts.training.recipe import load_recipe
from tests.foreign import write_description, write_embedder


@pytest.fixture(scope="session")
def teacher(tmp_path_factory):
    """An embedder of 16 dimensions to learn from."""
    return write_description(write_embedder(tmp_path_factory.mktemp("teacher") / "teacher.onnx", size=16))


@pytest.fixture(scope="session")
def other_teacher(tmp_path_factory):
    """Another, of 12 dimensions."""
    return write_description(write_embedder(tmp_path_factory.mktemp("teacher") / "other.onnx", size=12, seed=1))


@pytest.fixture
def unlabeled_faces(tmp_path):
    """A flat folder of ten images of unknown people."""
    folder = tmp_path / "unlabeled"
    write_synthetic_faces(tmp_path / "others", identities=5, images=2, seed=77)
    folder.mkdir()
    for number, file in enumerate(sorted((tmp_path / "others").rglob("*.jpg"))):
        file.rename(folder / f"{number}.jpg")
    return folder


@pytest.fixture(scope="session")
def recipe_file(drawn_faces, tmp_path_factory):
    """A tiny recipe on the synthetic faces."""
    fields = {
        "name": "tiny",
        "seed": 5,
        "data": {"name": "drawn", "terms": "none", "train": str(drawn_faces), "workers": 0},
        "backbone": {"name": "mobilefacenet", "width": 0.125, "embedding_size": 16, "dropout": 0.2},
        "method": {"name": "rts"},
        "optim": {"epochs": 2, "batch_size": 16, "lr": 0.05, "milestones": [1]},
        "compute": {"device": "cpu", "precision": "fp32", "threads": 1},
        "logging": {"every_steps": 2, "checkpoint_steps": 3},
    }
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(yaml.safe_dump(fields))
    return path


@pytest.fixture(scope="session")
def make_recipe(recipe_file):
    """Make that recipe; overrides as on the command line."""
    return lambda *overrides: load_recipe(recipe_file, overrides)


@pytest.fixture(scope="session")
def tiny_run(make_recipe, tmp_path_factory):
    """The folder of that recipe's run, which held nobody out."""
    return train(make_recipe(), tmp_path_factory.mktemp("tiny") / "run").parent


@pytest.fixture(autouse=True)
def _folders_of_recipes(monkeypatch):
    """Recipes that ship name files below these folders."""
    monkeypatch.setenv("FACERTS_DATA", "DATA")
    monkeypatch.setenv("FACERTS_MODELS", "MODELS")
    monkeypatch.setenv("FACERTS_NON_FACES", "NON_FACES")
