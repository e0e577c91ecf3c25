"""Verification benchmarks in a ``.bin`` file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from facerts.benchmarks.listed import FOLDS, equal_folds
from facerts.benchmarks.pair_benchmark import PairBenchmark
from facerts.datasets.bin_set import BinSet, write_bin
from facerts.errors import DataError


def load_bin(path: str | Path) -> PairBenchmark:
    """Load a .bin set as a benchmark: pair i is images 2i and 2i + 1; ten equal runs of pairs are the folds."""
    images = BinSet(Path(path))
    count = len(images.same)
    pairs = np.arange(2 * count, dtype=np.int64).reshape(-1, 2)
    return PairBenchmark(images.name, images, pairs, images.same, equal_folds(count, str(path)))


def save_bin(benchmark: PairBenchmark, path: str | Path) -> None:
    """Write a pair benchmark as a .bin set: the encoded images, pair by pair, in the order of the folds."""
    order = np.argsort(benchmark.folds, kind="stable")
    runs = np.bincount(benchmark.folds)
    if len(runs) != FOLDS or runs.min() != runs.max():
        raise DataError(
            f"{benchmark.name}: a .bin set must have {FOLDS} equal folds, but this benchmark has {runs.tolist()}"
        )
    pairs = benchmark.pairs[order]
    images = (benchmark.images.read(int(index)) for index in pairs.reshape(-1))
    write_bin(Path(path), images, benchmark.same[order].tolist())
