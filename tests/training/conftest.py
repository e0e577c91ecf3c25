"""Recipes that train in seconds on a small synthetic data set."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from facerts.training.recipe import Recipe, load_recipe

MakeRecipe = Callable[..., Recipe]


@pytest.fixture
def make_recipe(drawn_faces, tmp_path) -> MakeRecipe:
    """Make a tiny recipe on the synthetic faces; overrides as on the command line."""

    def make(*overrides: str) -> Recipe:
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
        path = tmp_path / "tiny.yaml"
        path.write_text(yaml.safe_dump(fields))
        return load_recipe(path, overrides)

    return make


@pytest.fixture(autouse=True)
def _folders_of_recipes(monkeypatch) -> None:
    """Recipes that ship name files below these folders."""
    monkeypatch.setenv("FACERTS_DATA", "DATA")
    monkeypatch.setenv("FACERTS_MODELS", "MODELS")
    monkeypatch.setenv("FACERTS_NON_FACES", "NON_FACES")
