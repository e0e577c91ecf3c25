"""The in-memory form of all verification benchmarks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.metrics.resample import pair_subjects


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
