"""An embedder that can be computed by hand, and benchmarks of drawn faces."""

import csv
import json

import numpy as np
import pytest

from facerts.datasets import open_source, pairs_from_identities
from facerts.datasets.source import Source
from facerts.embedding import FaceOutputs
from facerts.images import encode_png
from tests.foreign import quality_description, write_description, write_embedder, write_quality


class Plain:
    """Mean colors of a coarse grid as embedding, contrast as quality; remembers what it was given."""

    method = "unknown"

    def __init__(self, name="plain", sha256="a" * 64):
        self.name = name
        self.sha256 = sha256
        self.batches = []

    def __call__(self, crops):
        self.batches.append(len(crops))
        x = crops.astype(np.float32) / 255 - 0.5
        vector = x.reshape(len(x), 7, 16, 7, 16, 3).mean(axis=(2, 4)).reshape(len(x), 147)
        norm = np.linalg.norm(vector, axis=1)
        quality = x.std(axis=(1, 2, 3))
        return FaceOutputs(vector / norm[:, None], norm, quality, -quality)


class Seeded(Plain):
    """Plain with noise of a seed in its embedding and quality."""

    def __init__(self, name, seed, noise=0.05):
        super().__init__(name, f"{seed:064d}")
        self.seed, self.noise = seed, noise

    def __call__(self, crops):
        seen = super().__call__(crops)
        random = np.random.default_rng([self.seed, int(crops.astype(np.int64).sum())])
        vector = seen.embedding + self.noise * random.normal(size=seen.embedding.shape).astype(np.float32)
        norm = np.linalg.norm(vector, axis=1)
        quality = random.normal(size=len(crops)).astype(np.float32)
        return FaceOutputs(vector / norm[:, None], norm, quality, -quality)


class Images(Source):
    """Crops in memory, kept without loss."""

    def __init__(self, crops, *, name="made", labels=None):
        self.name, self.labels = name, labels
        self.identities = () if labels is None else [str(label) for label in np.unique(labels)]
        self._data = [encode_png(crop) for crop in crops]

    def __len__(self):
        return len(self._data)

    def key(self, index):
        return f"{index:04d}.png"

    def read(self, index):
        return self._data[index]


class Unread(Source):
    """Images that are only counted."""

    name, labels, identities = "unread", None, ()

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return self.images

    def key(self, index):
        return str(index)

    def read(self, index):
        raise AssertionError("templates are made of outputs, not of images")


def unit(vectors):
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), dtype=np.float32)


@pytest.fixture
def plain():
    return Plain()


@pytest.fixture
def drawn_benchmark(benchmark_folder):
    return pairs_from_identities(open_source(benchmark_folder / "people"), genuine=100, impostors=100, seed=2)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Two recognizers, one with a quality of its own; and a model that has a quality only, described elsewhere."""
    folder = tmp_path_factory.mktemp("models")
    write_description(write_embedder(folder / "one.onnx", quality=True), quality="output:bright")
    write_description(write_embedder(folder / "two.onnx", size=5, seed=3), input_color="BGR")
    write_quality(folder / "alone.onnx")
    (folder / "elsewhere.json").write_text(json.dumps(quality_description(name="Alone")))
    return folder


@pytest.fixture(scope="session")
def scores(tmp_path_factory, drawn_faces):
    """A CSV file with two scores of each drawn face, of which one is as good as constant."""
    source, random = open_source(drawn_faces), np.random.default_rng(0)
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "noise", "flat", "remark"])
        for index in range(len(source)):
            writer.writerow([f"/data/{source.key(index)}", random.random(), 1.0, "a, b"])
    return path
