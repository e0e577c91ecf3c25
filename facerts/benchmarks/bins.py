"""Verification sets in one ``.bin`` file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from facerts.benchmarks.pairs import PairBenchmark
from facerts.data.binset import BinSet
from facerts.errors import DataError

FOLDS = 10


def load_bin(path: str | Path) -> PairBenchmark:
    """A .bin set as a benchmark: pair i is images 2i and 2i + 1; ten equal runs of pairs are the folds.

    Raises:
        DataError: not a .bin set, or too few pairs for ten folds.
    """
    images = BinSet(Path(path))
    count = len(images.same)
    if count < FOLDS:
        raise DataError(f"{path}: {count} pairs cannot make {FOLDS} folds")
    pairs = np.arange(2 * count, dtype=np.int64).reshape(-1, 2)
    folds = np.repeat(np.arange(FOLDS), np.diff(np.linspace(0, count, FOLDS + 1).round().astype(int)))
    return PairBenchmark(images.name, images, pairs, images.same, folds.astype(np.int64))
