"""What many rooms' tests share: drawn faces, a small trained run, the real data where it is there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

# Two test processes on two cores: more threads than that only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

from facerts.datasets.synthetic import draw_face, write_non_faces, write_synthetic_faces

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def drawn_faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder by identity: 8 people, 8 pictures each."""
    folder = tmp_path_factory.mktemp("drawn") / "faces"
    write_synthetic_faces(folder, identities=8, images=8, seed=3)
    return folder


@pytest.fixture(scope="session")
def drawn_things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flat folder of 24 pictures without faces."""
    folder = tmp_path_factory.mktemp("drawn") / "things"
    write_non_faces(folder, images=24)
    return folder


@pytest.fixture(scope="session")
def crops() -> NDArray[np.uint8]:
    """Twelve drawn crops."""
    return np.stack([draw_face(identity, picture) for identity in range(4) for picture in range(3)])


@pytest.fixture(scope="session")
def facerts_data() -> Path:
    """The real pictures: FACERTS_DATA, or ../shared/data."""
    folder = Path(os.environ.get("FACERTS_DATA", SHARED / "data"))
    if not (folder / "faces").is_dir():
        pytest.skip(f"the real pictures are not at {folder}; set FACERTS_DATA to run this")
    return folder


@pytest.fixture(scope="session")
def reference_models() -> Path:
    """Reference models beside the real pictures."""
    folder = SHARED / "models"
    if not (folder / "mobilefacenet.onnx").is_file():
        pytest.skip(f"the reference models are not at {folder}")
    return folder


@pytest.fixture(scope="session")
def trained_run(drawn_faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short RTS run on the drawn faces."""
    pytest.importorskip("torch")
    from facerts.training.loop import train
    from facerts.training.recipe import Recipe

    folder = tmp_path_factory.mktemp("trained") / "run"
    recipe = Recipe.model_validate(
        {
            "name": "short",
            "seed": 1,
            "data": {"name": "drawn", "terms": "none", "train": str(drawn_faces), "workers": 0},
            "backbone": {"name": "mobilefacenet", "width": 0.25, "embedding_size": 16},
            "method": {"name": "rts", "logit_scale": 16, "margin": 0.2},
            # Enough steps for the running statistics of BatchNorm to be those of the network.
            "optim": {"epochs": 20, "batch_size": 16, "lr": 0.05, "milestones": [14]},
            "compute": {"device": "cpu", "precision": "fp32", "threads": 1},
            "logging": {"every_steps": 8, "checkpoint_steps": 100},
        }
    )
    train(recipe, folder)
    return folder


@pytest.fixture(scope="session")
def exported(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That run as ONNX."""
    from facerts.training.export.from_checkpoint import export_run

    path = tmp_path_factory.mktemp("exported") / "short.onnx"
    export_run(trained_run, path)
    return path
