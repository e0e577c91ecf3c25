"""Finding people in a gallery (1:N): exact search, closed-set ranks, open-set errors.

Closed set (ISO/IEC 19795-1): every probe's person is in the gallery; the rank-k rate is the share of probes whose
person is among the k best. Open set: some are not; FPIR is the share of those (non-mated probes) whose best score
reaches the threshold, FNIR the share of mated probes whose person is not first or stays below it.
A gallery may hold several templates of a person; people are ranked by their best one. In a tie the right person comes
last, so that no metric gains by equal scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

ROWS, COLUMNS = 1024, 8192


@dataclass(frozen=True)
class Found:
    """The best gallery templates of each probe.

    Attributes:
        scores: ``(P, k) float32``, falling.
        templates: ``(P, k) int64`` rows of the gallery.
    """

    scores: NDArray[np.float32]
    templates: NDArray[np.int64]


def search(gallery: ArrayLike, probes: ArrayLike, k: int) -> Found:
    """The k gallery templates of highest cosine for each probe, exactly, by blocks of bounded memory.

    Args:
        gallery: ``(G, d)`` of unit length.
        probes: ``(P, d)`` of unit length.
        k: how many; the whole gallery where it is smaller.

    Raises:
        ValueError: an empty gallery, or sizes that do not fit.
    """
    known, asked = (np.asarray(given, dtype=np.float32) for given in (gallery, probes))
    if known.ndim != 2 or asked.ndim != 2 or known.shape[1] != asked.shape[1] or not len(known):
        raise ValueError(
            f"a search needs a gallery and probes of one size, not {known.shape} and {asked.shape}"
        )
    k = min(k, len(known))
    scores = np.empty((len(asked), k), dtype=np.float32)
    templates = np.empty((len(asked), k), dtype=np.int64)
    for top in range(0, len(asked), ROWS):
        rows = asked[top : top + ROWS]
        best = np.full((len(rows), 0), -np.inf, dtype=np.float32)
        where = np.empty((len(rows), 0), dtype=np.int64)
        for start in range(0, len(known), COLUMNS):
            block = rows @ known[start : start + COLUMNS].T
            numbers = np.broadcast_to(np.arange(start, start + block.shape[1]), block.shape)
            best, where = _best(
                np.concatenate([best, block], axis=1), np.concatenate([where, numbers], axis=1), k
            )
        # Equal scores in the order of the gallery.
        order = np.lexsort((where, -best))
        scores[top : top + ROWS] = np.take_along_axis(best, order, axis=1)
        templates[top : top + ROWS] = np.take_along_axis(where, order, axis=1)
    return Found(scores, templates)


def mate_ranks(found: Found, gallery_subjects: ArrayLike, probe_subjects: ArrayLike) -> NDArray[np.int64]:
    """``(P,)`` rank of each probe's own person among the people found, from 1; 0 where it is not among them.

    Args:
        found: of ``search``.
        gallery_subjects: ``(G,)``.
        probe_subjects: ``(P,)``.
    """
    people = np.asarray(gallery_subjects)[found.templates]
    own = people == np.asarray(probe_subjects)[:, None]
    first = np.where(own.any(axis=1), own.argmax(axis=1), -1)
    ranks = np.zeros(len(people), dtype=np.int64)
    for probe in np.flatnonzero(first >= 0):
        score = found.scores[probe, first[probe]]
        ahead = people[probe, (found.scores[probe] >= score) & ~own[probe]]
        ranks[probe] = 1 + len(np.unique(ahead))
    return ranks


def rank_rates(ranks: ArrayLike, upto: Sequence[int]) -> dict[int, float]:
    """Share of probes whose person has rank k or better, for each k (the CMC curve)."""
    given = np.asarray(ranks)
    return {k: float(np.mean((given >= 1) & (given <= k))) for k in upto}


@dataclass(frozen=True)
class OpenSetPoint:
    """FNIR at an FPIR.

    Attributes:
        fnir: share of mated probes missed.
        achieved_fpir: share of non-mated probes that reach the threshold, at most the target.
        threshold: accept at or above.
        non_mated: how many the rate rests on.
    """

    fnir: float
    achieved_fpir: float
    threshold: float
    non_mated: int


def fnir_at_fpir(
    mated_score: ArrayLike, mated_rank: ArrayLike, non_mated_score: ArrayLike, target: float
) -> OpenSetPoint:
    """FNIR at the laxest threshold whose FPIR does not exceed ``target``.

    Args:
        mated_score: ``(M,)`` best score of each mated probe.
        mated_rank: ``(M,)`` rank of its person; only rank 1 is a find.
        non_mated_score: ``(Q,)`` best score of each non-mated probe.
        target: FPIR.

    Raises:
        ValueError: no mated or no non-mated probes.
    """
    scores, ranks = np.asarray(mated_score, dtype=np.float64), np.asarray(mated_rank)
    others = np.sort(np.asarray(non_mated_score, dtype=np.float64))[::-1]
    if not len(scores) or not len(others):
        raise ValueError("open-set identification needs mated and non-mated probes")
    allowed = int(np.floor(target * len(others) + 1e-9))
    threshold = float(np.nextafter(others[allowed], np.inf)) if allowed < len(others) else float("-inf")
    return OpenSetPoint(
        float(np.mean((ranks != 1) | (scores < threshold))),
        float(np.mean(others >= threshold)),
        threshold,
        len(others),
    )


def _best(
    scores: NDArray[np.float32], numbers: NDArray[np.int64], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    if scores.shape[1] <= k:
        return scores, numbers
    chosen = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    return np.take_along_axis(scores, chosen, axis=1), np.take_along_axis(numbers, chosen, axis=1)
