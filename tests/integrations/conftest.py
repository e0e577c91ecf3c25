"""What the tests of integrations share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.foreign import write_description, write_embedder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small embedder with a quality and a threshold, to be read only."""
    path = write_embedder(tmp_path_factory.mktemp("model") / "model.onnx", quality=True)
    thresholds = {"0.95": {"quality": 0.0, "data_sha256": "0" * 64}}
    write_description(path, quality="output:bright", thresholds=thresholds)
    return path
