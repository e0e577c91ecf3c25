"""Find benchmarks that contain the same image more than once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks.pair_benchmark import PairBenchmark


def repeated_images(benchmark: PairBenchmark, first: NDArray[np.int64]) -> tuple[str, ...]:
    """Warnings about images that occur more than once in a benchmark, one sentence each.

    Args:
        first: ``(N,)`` index of the first image with the same bytes, from ``fingerprint.hash_images``.
    """
    notes = []
    images = first[benchmark.pairs]
    twice = images[:, 0] == images[:, 1]
    for flag, what in ((True, "genuine"), (False, "impostor")):
        rows = np.flatnonzero(twice & (benchmark.same == flag))
        if len(rows):
            notes.append(
                f"{len(rows)} {what} pairs consist of the same image twice, the first is "
                + _key(benchmark, images[rows[0], 0])
                + ("." if flag else ": they are mislabeled.")
            )
    used = np.unique(np.stack([images.reshape(-1), np.repeat(benchmark.folds, 2)], axis=1), axis=0)
    shared, folds = np.unique(used[:, 0], return_counts=True)
    across = shared[folds > 1]
    if len(across):
        folds_of_first = sorted(used[used[:, 0] == across[0], 1].tolist())
        notes.append(
            f"{len(across)} images occur in more than one fold, the first is {_key(benchmark, across[0])} in folds "
            f"{', '.join(str(fold) for fold in folds_of_first)}: thresholds chosen on the other folds have seen them."
        )
    return tuple(notes)


def _key(benchmark: PairBenchmark, row: int) -> str:
    return benchmark.images.key(int(row))
