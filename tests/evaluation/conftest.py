"""An embedder that can be computed by hand, and benchmarks of drawn faces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.benchmarks import PairBenchmark, pairs_from_identities
from facerts.benchmarks.bin_sets import save_bin
from facerts.datasets import open_source
from facerts.datasets.source import Source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.detection.detector import Detection
from facerts.embedding import FaceOutputs
from facerts.images import encode_png


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


def write_pairs(benchmark: PairBenchmark, path: Path) -> Path:
    """A .csv list of pairs of files by person (``person_0000/0000.jpg``), beside their folders."""
    lines = ["first,second,same,fold,first_subject,second_subject"]
    for (first, second), same, fold in zip(benchmark.pairs, benchmark.same, benchmark.folds, strict=True):
        keys = [benchmark.images.key(int(row)) for row in (first, second)]
        people = [key.split("/")[0] for key in keys]
        lines.append(f"{','.join(keys)},{int(same)},{fold},{','.join(people)}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def plain() -> Plain:
    return Plain()


@pytest.fixture(scope="session")
def benchmark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark")
    write_synthetic_faces(folder / "people", identities=30, images=4, seed=11)
    pairs = pairs_from_identities(open_source(folder / "people"), genuine=100, impostors=100, seed=2)
    save_bin(pairs, folder / "people.bin")
    write_pairs(pairs, folder / "people" / "named.csv")
    return folder


@pytest.fixture(scope="session")
def named(benchmark_folder: Path) -> Path:
    """The same pairs as a list that names the people, so that all pairs of the images can be measured."""
    return benchmark_folder / "people" / "named.csv"


@pytest.fixture
def drawn_benchmark(benchmark_folder: Path) -> PairBenchmark:
    return pairs_from_identities(open_source(benchmark_folder / "people"), genuine=100, impostors=100, seed=2)
