"""From what a user names to a benchmark."""

from __future__ import annotations

from pathlib import Path

from facerts.benchmarks.bins import load_bin
from facerts.benchmarks.lfw import PAIRS, load_lfw
from facerts.benchmarks.pairs import PairBenchmark
from facerts.errors import DataError


def open_benchmark(path: str | Path) -> PairBenchmark:
    """A .bin set, or a folder with LFW's pairs.txt.

    Raises:
        DataError: neither, or broken.
    """
    path = Path(path)
    if path.is_dir():
        if (path / PAIRS).is_file():
            return load_lfw(path)
        raise DataError(
            f"{path}: no {PAIRS} here, so its pairs are unknown; give a .bin set or a folder in LFW's layout"
        )
    if path.suffix.lower() == ".bin" and path.is_file():
        return load_bin(path)
    raise DataError(f"{path}: no such verification set; give a .bin file or a folder with {PAIRS}")
