"""The form that every verification benchmark takes once it is read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.metrics.resample import pair_subjects


@dataclass(frozen=True)
class PairBenchmark:
    """Pictures, and pairs of them to be told same from different.

    Attributes:
        name: for tables and results.
        images: the pictures, aligned; labels are the subjects where the benchmark names them.
        pairs: ``(P, 2) int64`` indices into ``images``.
        same: ``(P,) bool``, True for a genuine pair.
        folds: ``(P,) int64`` in ``0 … 9``.
        notes: what was found and what is missing, one sentence each.
    """

    name: str
    images: Source
    pairs: NDArray[np.int64]
    same: NDArray[np.bool_]
    folds: NDArray[np.int64]
    notes: tuple[str, ...] = field(default=())


def subjects_of_pairs(benchmark: PairBenchmark) -> NDArray[np.int64] | None:
    """``(P, 2)`` people of each pair, for intervals that resample people.

    None, so that pairs are drawn, where the people are unknown or contradict the pairs: a benchmark whose list and
    names disagree (its notes say so) does not tell which of the two is wrong.
    """
    subjects = pair_subjects(benchmark.images.labels, benchmark.pairs)
    if subjects is None or ((subjects[:, 0] == subjects[:, 1]) != benchmark.same).any():
        return None
    return subjects
