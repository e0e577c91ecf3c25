"""An embedder that can be computed by hand, and benchmarks of drawn faces."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.datasets import PairBenchmark, open_source, pairs_from_identities
from facerts.datasets.source import Source
from facerts.detection.detector import Detection
from facerts.embedding import FaceOutputs
from facerts.images import encode_png
from tests.foreign import quality_description, write_description, write_embedder, write_quality


class Plain:
    """Mean colors of a coarse grid as embedding, contrast as quality; remembers what it was given."""

    method = "unknown"

    def __init__(self, name: str = "plain", sha256: str = "a" * 64) -> None:
        self.name = name
        self.sha256 = sha256
        self.batches: list[int] = []

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        self.batches.append(len(crops))
        x = crops.astype(np.float32) / 255 - 0.5
        vector = x.reshape(len(x), 7, 16, 7, 16, 3).mean(axis=(2, 4)).reshape(len(x), 147)
        norm = np.linalg.norm(vector, axis=1)
        quality = x.std(axis=(1, 2, 3))
        return FaceOutputs(vector / norm[:, None], norm, quality, -quality)


class Seeded(Plain):
    """Plain with noise of a seed in its embedding and quality."""

    def __init__(self, name: str, seed: int, noise: float = 0.05) -> None:
        super().__init__(name, f"{seed:064d}")
        self.seed, self.noise = seed, noise

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        seen = super().__call__(crops)
        random = np.random.default_rng([self.seed, int(crops.astype(np.int64).sum())])
        vector = seen.embedding + self.noise * random.normal(size=seen.embedding.shape).astype(np.float32)
        norm = np.linalg.norm(vector, axis=1)
        quality = random.normal(size=len(crops)).astype(np.float32)
        return FaceOutputs(vector / norm[:, None], norm, quality, -quality)


class Brightest:
    """A detector that takes a crop's lightest and darkest channel for two faces, and finds none in dark crops."""

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        levels = np.sort(image.mean(axis=(0, 1)) / 255)
        if levels[2] < 0.5:
            return []
        return [Detection(np.zeros(4), np.zeros((5, 2)), float(score)) for score in (levels[0], levels[2])]


class Images(Source):
    """Crops in memory, kept without loss."""

    def __init__(
        self, crops: NDArray[np.uint8], *, name: str = "made", labels: NDArray[np.int64] | None = None
    ) -> None:
        self.name, self.labels = name, labels
        self.identities = () if labels is None else [str(label) for label in np.unique(labels)]
        self._data = [encode_png(crop) for crop in crops]

    def __len__(self) -> int:
        return len(self._data)

    def key(self, index: int) -> str:
        return f"{index:04d}.png"

    def read(self, index: int) -> bytes:
        return self._data[index]


class Unread(Source):
    """Images that are only counted."""

    name, labels, identities = "unread", None, ()

    def __init__(self, images: int) -> None:
        self.images = images

    def __len__(self) -> int:
        return self.images

    def key(self, index: int) -> str:
        return str(index)

    def read(self, index: int) -> bytes:
        raise AssertionError("templates are made of outputs, not of images")


def unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), dtype=np.float32)


@pytest.fixture
def plain() -> Plain:
    return Plain()


@pytest.fixture
def drawn_benchmark(benchmark_folder) -> PairBenchmark:
    return pairs_from_identities(open_source(benchmark_folder / "people"), genuine=100, impostors=100, seed=2)


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """Two recognizers, one with a quality of its own; and a model that has a quality only, described elsewhere."""
    folder = tmp_path_factory.mktemp("models")
    write_description(write_embedder(folder / "one.onnx", quality=True), quality="output:bright")
    write_description(write_embedder(folder / "two.onnx", size=5, seed=3), input_color="BGR")
    write_quality(folder / "alone.onnx")
    (folder / "elsewhere.json").write_text(json.dumps(quality_description(name="Alone")))
    return folder


@pytest.fixture(scope="session")
def scores(tmp_path_factory, drawn_faces) -> Path:
    """A CSV file with two scores of each drawn face, of which one is as good as constant."""
    source, random = open_source(drawn_faces), np.random.default_rng(0)
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "noise", "flat", "remark"])
        for index in range(len(source)):
            writer.writerow([f"/data/{source.key(index)}", random.random(), 1.0, "a, b"])
    return path
