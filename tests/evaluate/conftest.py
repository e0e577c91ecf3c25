"""An embedder that can be computed by hand, and benchmarks of drawn faces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.benchmarks import PairBenchmark, pairs_from_identities
from facerts.benchmarks.bins import save_bin
from facerts.data import open_source
from facerts.data.drawn import write_drawn
from facerts.embedder import FaceOutputs


class Plain:
    """Mean colours of a coarse grid as embedding, contrast as quality; remembers what it was given."""

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


@pytest.fixture
def plain() -> Plain:
    return Plain()


@pytest.fixture(scope="session")
def benchmark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark")
    write_drawn(folder / "people", identities=30, pictures=4, seed=11)
    pairs = pairs_from_identities(open_source(folder / "people"), genuine=100, impostors=100, seed=2)
    save_bin(pairs, folder / "people.bin")
    return folder


@pytest.fixture
def drawn_benchmark(benchmark_folder: Path) -> PairBenchmark:
    return pairs_from_identities(open_source(benchmark_folder / "people"), genuine=100, impostors=100, seed=2)
