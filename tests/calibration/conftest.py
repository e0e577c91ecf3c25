"""People whose faces thresholds are calibrated on, and a model to calibrate."""

import pytest

from facerts.datasets.synthetic import write_synthetic_faces
from tests.foreign import write_description, write_embedder


@pytest.fixture(scope="session")
def people(tmp_path_factory):
    """A folder by identity: 15 people with 8 images each, so 420 genuine and 6,720 impostor pairs."""
    folder = tmp_path_factory.mktemp("own") / "people"
    write_synthetic_faces(folder, identities=15, images=8, seed=5)
    return folder


@pytest.fixture
def model(tmp_path):
    """A foreign model whose norm is its quality."""
    return write_description(write_embedder(tmp_path / "model.onnx"), license="custom")
