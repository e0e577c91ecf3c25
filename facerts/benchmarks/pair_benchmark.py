"""The in-memory form of all verification benchmarks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.metrics.intervals import pair_subjects


@dataclass(frozen=True)
class PairBenchmark:
    """Images, and genuine and impostor pairs of them.

    Attributes:
        images: aligned images; labels are the subjects if the benchmark names them.
        pairs: ``(P, 2) int64`` indices into ``images``.
        same: ``(P,) bool``, True for a genuine pair.
        folds: ``(P,) int64`` in ``0 … 9``.
    """

    name: str
    images: Source
    pairs: NDArray[np.int64]
    same: NDArray[np.bool_]
    folds: NDArray[np.int64]
    notes: tuple[str, ...] = field(default=())


def subjects_of_pairs(benchmark: PairBenchmark) -> NDArray[np.int64] | None:
    """``(P, 2)`` subjects of each pair, for intervals that resample subjects.

    None, so that pairs are resampled, if the subjects are unknown or contradict the pairs: if a benchmark's list and
    its names disagree, as its notes say, either of them may be wrong.
    """
    subjects = pair_subjects(benchmark.images.labels, benchmark.pairs)
    if subjects is None or ((subjects[:, 0] == subjects[:, 1]) != benchmark.same).any():
        return None
    return subjects


def repeated_images(benchmark: PairBenchmark, first: NDArray[np.int64]) -> tuple[str, ...]:
    """Warnings about images that occur more than once in a benchmark, one sentence each.

    ``first`` is ``(N,)``, the first image with the same bytes, from ``fingerprint.hash_images``.
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
