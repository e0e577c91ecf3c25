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

ROWS, COLUMNS = 512, 4096


@dataclass(frozen=True)
class SearchResult:
    """The best gallery templates of each probe.

    Attributes:
        scores: ``(P, k) float32``, falling.
        templates: ``(P, k) int64`` rows of the gallery.
    """

    scores: NDArray[np.float32]
    templates: NDArray[np.int64]


def search(gallery: ArrayLike, probes: ArrayLike, k: int) -> SearchResult:
    """The k gallery templates of highest cosine for each probe, exactly, by blocks of bounded memory.

    Args:
        gallery: ``(G, d)`` of unit length.
        probes: ``(P, d)`` of unit length.
        k: how many; the whole gallery where it is smaller.

    Raises:
        ValueError: an empty gallery, or sizes that do not fit.

    Examples:
        >>> gallery = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]
        >>> found = search(gallery, probes=[[0.8, 0.6]], k=2)
        >>> found.templates.tolist()
        [[2, 0]]
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
        best = np.full((len(rows), k), -np.inf, dtype=np.float32)
        where = np.full((len(rows), k), -1, dtype=np.int64)
        for start in range(0, len(known), COLUMNS):
            best, where = _better(best, where, rows @ known[start : start + COLUMNS].T, start)
        scores[top : top + ROWS], templates[top : top + ROWS] = best, where
    return SearchResult(scores, templates)


def mate_ranks(
    found: SearchResult, gallery_subjects: ArrayLike, probe_subjects: ArrayLike
) -> NDArray[np.int64]:
    """``(P,)`` rank of each probe's own person among the people found, from 1; 0 where it is not among them.

    Ranks are exact only up to the number of people that ``found`` surely holds: its k templates divided by the most
    that one person has in the gallery. Search for one more than the wanted rank takes: a tie that goes on beyond what
    was found would otherwise put the right person too far ahead.

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


def _better(
    best: NDArray[np.float32], where: NDArray[np.int64], block: NDArray[np.float32], start: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The k best of those so far and of a block of the gallery; equal scores in the order of the gallery."""
    rows, k = best.shape
    if start == 0 and block.shape[1] > k:
        # All would be better than nothing: only what can be among the k best goes on.
        floor = np.partition(block, block.shape[1] - k, axis=1)[:, block.shape[1] - k]
        candidates = block >= floor[:, None]
    else:
        candidates = block > best[:, -1:]
    # Ten times as fast as nonzero of two dimensions.
    row, column = np.divmod(np.flatnonzero(candidates), block.shape[1])
    if not len(row):
        return best, where
    all_rows = np.concatenate([np.repeat(np.arange(rows), k), row])
    all_scores = np.concatenate([best.reshape(-1), block[row, column]])
    all_places = np.concatenate([where.reshape(-1), column + start])
    order = np.lexsort((all_places, -all_scores, all_rows))
    starts = np.searchsorted(all_rows[order], np.arange(rows))
    kept = order[starts[:, None] + np.arange(k)]
    return all_scores[kept], all_places[kept]
