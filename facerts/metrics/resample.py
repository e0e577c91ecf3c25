"""Bootstrap weights of pairs: how often each pair counts in a replicate.

Pairs that share a person are not independent, so if people are known, they are sampled with replacement: a genuine pair
counts as often as its person was sampled, an impostor pair as often as the product of both. Otherwise pairs are
sampled, genuine and impostor pairs separately. Resampling people gives wider and more accurate intervals (Fogliato et
al., "Confidence intervals for error rates in 1:1 matching tasks", IJCV 2024).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

ResamplingUnit = Literal["subjects", "pairs"]
Weights = NDArray[np.float32]


def pair_subjects(labels: NDArray[np.integer] | None, pairs: NDArray[np.integer]) -> NDArray[np.int64] | None:
    """``(P, 2)`` subjects of each pair from ``(N,)`` labels of images; None without labels."""
    return None if labels is None else np.asarray(labels[pairs], dtype=np.int64)


def subject_counts(subjects: int, replicates: int, seed: int) -> Iterator[NDArray[np.float32]]:
    """For each replicate, how often each of ``subjects`` people is sampled, ``(subjects,)``."""
    random = np.random.default_rng(seed)
    for _ in range(replicates):
        counts = np.bincount(random.integers(0, subjects, subjects), minlength=subjects)
        yield counts.astype(np.float32)


def pair_weights(
    same: ArrayLike, subjects: NDArray[np.integer] | None, *, replicates: int, seed: int = 0
) -> Iterator[Weights]:
    """For each replicate, the weights ``(P,)`` of the pairs.

    ``subjects`` ``(P, 2)`` are those of each pair, to resample subjects; None to resample pairs.
    """
    flags = np.asarray(same, dtype=bool)
    if subjects is None:
        random = np.random.default_rng(seed)
        rows = np.flatnonzero(flags), np.flatnonzero(~flags)
        for _ in range(replicates):
            weights = np.zeros(len(flags), dtype=np.float32)
            for of_class in rows:
                drawn = random.integers(0, len(of_class), len(of_class))
                weights[of_class] = np.bincount(drawn, minlength=len(of_class))
            yield weights
        return
    first, second, people = check_subjects(flags, subjects)
    for counts in subject_counts(people, replicates, seed):
        weights = counts[first]
        weights *= np.where(flags, np.float32(1), counts[second])
        yield weights


def check_subjects(
    same: NDArray[np.bool_], subjects: NDArray[np.integer]
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """First and second subjects of pairs, numbered without gaps, and their number; they must agree with ``same``."""
    people = np.asarray(subjects)
    if people.shape != (len(same), 2):
        raise ValueError(f"subjects are {people.shape}, but there are {len(same)} pairs")
    wrong = np.flatnonzero((people[:, 0] == people[:, 1]) != same)
    if len(wrong):
        kind = "genuine" if same[wrong[0]] else "impostor"
        raise ValueError(f"pair {wrong[0]} is {kind}, but its subjects are {people[wrong[0]].tolist()}")
    names = np.unique(people)
    first, second = (np.searchsorted(names, people[:, side]).astype(np.int32) for side in (0, 1))
    return first, second, len(names)
