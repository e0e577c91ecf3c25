"""Benchmarks that contain the same image more than once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks.pairs import PairBenchmark


def repeated_images(benchmark: PairBenchmark, first: NDArray[np.int64]) -> tuple[str, ...]:
    """What is wrong with a benchmark in which the same bytes stand more than once, one sentence each."""
    notes = []
    pictures = first[benchmark.pairs]
    twice = pictures[:, 0] == pictures[:, 1]
    for flag, what in ((True, "genuine"), (False, "impostor")):
        rows = np.flatnonzero(twice & (benchmark.same == flag))
        if len(rows):
            notes.append(
                f"{len(rows)} {what} pairs are one picture twice, the first is "
                + _named(benchmark, pictures[rows[0], 0])
                + ("." if flag else ": they are labeled wrongly.")
            )
    used = np.unique(np.stack([pictures.reshape(-1), np.repeat(benchmark.folds, 2)], axis=1), axis=0)
    shared, folds = np.unique(used[:, 0], return_counts=True)
    across = shared[folds > 1]
    if len(across):
        where = sorted(used[used[:, 0] == across[0], 1].tolist())
        notes.append(
            f"{len(across)} pictures stand in more than one fold, the first is {_named(benchmark, across[0])} in folds "
            f"{', '.join(str(fold) for fold in where)}: thresholds chosen on the other folds have seen them."
        )
    return tuple(notes)


def _named(benchmark: PairBenchmark, row: int) -> str:
    return benchmark.images.key(int(row))
