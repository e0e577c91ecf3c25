"""Identification (1:N): exact search in a gallery, closed-set ranks, open-set errors.

Closed set (ISO/IEC 19795-1): every probe's person is in the gallery; the rank-k rate is the share of probes whose
person is among the k best. Open set: some people are not; FPIR is the share of their probes (non-mated) whose best
score reaches the threshold, FNIR the share of mated probes whose person is not ranked first or scores below it. A
gallery may contain several templates of a person; people are ranked by their best one. In a tie the right person comes
last, so that no metric benefits from equal scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

ROWS, COLUMNS = 512, 4096


@dataclass(frozen=True)
class SearchResult:
    """The best gallery templates for each probe: ``(P, k) float32`` scores, descending, and ``(P, k) int64`` rows."""

    scores: NDArray[np.float32]
    templates: NDArray[np.int64]


def search(gallery: ArrayLike, probes: ArrayLike, k: int) -> SearchResult:
    """The k gallery templates with the highest cosine similarity for each probe, exactly, in blocks of bounded memory.

    Args:
        gallery: ``(G, d)`` of unit length.
        probes: ``(P, d)`` of unit length.
        k: number of templates; the whole gallery if that is smaller.

    Examples:
        >>> gallery = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]
        >>> found = search(gallery, probes=[[0.8, 0.6]], k=2)
        >>> found.templates.tolist()
        [[2, 0]]
    """
    known, queries = (np.asarray(vectors, dtype=np.float32) for vectors in (gallery, probes))
    if known.ndim != 2 or queries.ndim != 2 or known.shape[1] != queries.shape[1] or not len(known):
        raise ValueError(f"a search needs a gallery and probes of the same size, not {known.shape} and {queries.shape}")
    k = min(k, len(known))
    scores = np.empty((len(queries), k), dtype=np.float32)
    templates = np.empty((len(queries), k), dtype=np.int64)
    for top in range(0, len(queries), ROWS):
        rows = queries[top : top + ROWS]
        best = np.full((len(rows), k), -np.inf, dtype=np.float32)
        where = np.full((len(rows), k), -1, dtype=np.int64)
        for start in range(0, len(known), COLUMNS):
            best, where = _merge_best(best, where, rows @ known[start : start + COLUMNS].T, start)
        scores[top : top + ROWS], templates[top : top + ROWS] = best, where
    return SearchResult(scores, templates)


def mate_ranks(result: SearchResult, gallery_subjects: ArrayLike, probe_subjects: ArrayLike) -> NDArray[np.int64]:
    """``(P,)`` rank of each probe's own person among the people found, from 1; 0 if the person was not found.

    Ranks are exact only up to the number of people that ``result`` must contain: its k templates divided by the maximum
    number that a person has in the gallery. Search for one more than the rank requires: a tie that continues beyond
    the result would otherwise rank the right person too high.

    Args:
        gallery_subjects: ``(G,)`` subject of each template.
        probe_subjects: ``(P,)`` subject of each probe.
    """
    people = np.asarray(gallery_subjects)[result.templates]
    own = people == np.asarray(probe_subjects)[:, None]
    first = np.where(own.any(axis=1), own.argmax(axis=1), -1)
    ranks = np.zeros(len(people), dtype=np.int64)
    for probe in np.flatnonzero(first >= 0):
        score = result.scores[probe, first[probe]]
        ahead = people[probe, (result.scores[probe] >= score) & ~own[probe]]
        ranks[probe] = 1 + len(np.unique(ahead))
    return ranks


def rank_rates(ranks: ArrayLike, upto: Sequence[int]) -> dict[int, float]:
    """Share of probes whose person has rank k or better, for each k (the CMC curve)."""
    values = np.asarray(ranks)
    return {k: float(np.mean((values >= 1) & (values <= k))) for k in upto}


@dataclass(frozen=True)
class OpenSetPoint:
    """FNIR at an FPIR.

    Attributes:
        fnir: share of mated probes missed.
        achieved_fpir: share of non-mated probes that reach the threshold, at most the target.
        threshold: accept at or above.
    """

    fnir: float
    achieved_fpir: float
    threshold: float
    non_mated: int


def fnir_at_fpir(
    mated_score: ArrayLike, mated_rank: ArrayLike, non_mated_score: ArrayLike, target: float
) -> OpenSetPoint:
    """FNIR at the lowest threshold whose FPIR does not exceed ``target``.

    Args:
        mated_score: ``(M,)`` best score of each mated probe.
        mated_rank: ``(M,)`` rank of its person; only rank 1 counts as identified.
        non_mated_score: ``(Q,)`` best score of each non-mated probe.
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


def _merge_best(
    best: NDArray[np.float32], where: NDArray[np.int64], block: NDArray[np.float32], start: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Merge the k best so far with a block of the gallery; equal scores keep the order of the gallery."""
    rows, k = best.shape
    candidates = block > best[:, -1:]
    if block.shape[1] > k and np.count_nonzero(candidates) > 2 * best.size:
        # Keep only what can be among the k best, as most of a first block, or of an adversary's, would be sorted.
        floor = np.partition(block, block.shape[1] - k, axis=1)[:, block.shape[1] - k, None]
        tied = block == floor
        tied &= np.cumsum(tied, axis=1) <= k
        candidates &= (block > floor) | tied
    # Ten times faster than np.nonzero in two dimensions.
    row, column = np.divmod(np.flatnonzero(candidates), block.shape[1])
    if not len(row):
        return best, where
    all_rows = np.concatenate([np.repeat(np.arange(rows), k), row])
    all_scores = np.concatenate([best.reshape(-1), block[row, column]])
    all_columns = np.concatenate([where.reshape(-1), column + start])
    order = np.lexsort((all_columns, -all_scores, all_rows))
    starts = np.searchsorted(all_rows[order], np.arange(rows))
    kept = order[starts[:, None] + np.arange(k)]
    return all_scores[kept], all_columns[kept]
