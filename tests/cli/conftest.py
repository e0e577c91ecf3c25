"""What the tests of commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.foreign import write_description, write_embedder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small embedder with a quality, to be read only."""
    path = write_embedder(tmp_path_factory.mktemp("model") / "model.onnx", quality=True)
    write_description(path, quality="output:bright")
    return path
