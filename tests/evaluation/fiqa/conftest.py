"""A small league: two recognizers, qualities of every kind, faces and non-faces."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from facerts.datasets import open_source
from tests.foreign import quality_description, write_description, write_embedder, write_quality


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recognizers, one with a quality of its own; and a model that has a quality only, described elsewhere."""
    folder = tmp_path_factory.mktemp("models")
    write_description(write_embedder(folder / "one.onnx", quality=True), quality="output:bright")
    write_description(write_embedder(folder / "two.onnx", size=5, seed=3), input_color="BGR")
    write_quality(folder / "alone.onnx")
    (folder / "elsewhere.json").write_text(json.dumps(quality_description(name="Alone")))
    return folder


@pytest.fixture(scope="session")
def scores(tmp_path_factory: pytest.TempPathFactory, drawn_faces: Path) -> Path:
    """A CSV file with two scores of each drawn face, of which one is as good as constant."""
    source, random = open_source(drawn_faces), np.random.default_rng(0)
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "noise", "flat", "remark"])
        for index in range(len(source)):
            writer.writerow([f"/data/{source.key(index)}", random.random(), 1.0, "a, b"])
    return path
