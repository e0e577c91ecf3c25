"""Embeddings on a benchmark of templates: identification (1:N)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.template_benchmark import Roster, TemplateBenchmark
from facerts.embedding.outputs import FaceOutputs
from facerts.embedding.search import Backend, find
from facerts.errors import DataError
from facerts.evaluation.pair_verification import pooled
from facerts.evaluation.results.identification_result import FnirAtFpir, GallerySearch, RankRate
from facerts.metrics.identification import fnir_at_fpir, mate_ranks, rank_rates
from facerts.metrics.intervals import resampled_rate_interval, subject_counts
from facerts.metrics.verification import reachable


def identification_of(
    outputs: FaceOutputs,
    benchmark: TemplateBenchmark,
    *,
    ranks: Sequence[int] = (1, 5, 10),
    fpirs: Sequence[float] = (0.01, 0.1),
    backend: Backend = "numpy",
    replicates: int = 500,
) -> list[GallerySearch]:
    """Search for the benchmark's probes in each of its galleries, with each pooling; a result for each of both.

    A probe is mated where its person is in the gallery. Ranks are of people among people. Intervals come from a
    bootstrap that draws the people of the probes, each with all of its probes; the threshold at an FPIR is found
    anew in every replicate.

    Args:
        ranks: of these, those below the number of the gallery's people are measured, or the first.
        fpirs: rates for the open set; those at which not even one non-mated probe may pass are left out.
    """
    if benchmark.probes is None or not benchmark.galleries:
        missing = "galleries" if benchmark.probes is not None else "probes"
        raise DataError(
            f"{benchmark.name}: identification needs galleries and probes, and it has no {missing}"
        )
    entries = []
    for name, templates in pooled(outputs, benchmark).items():
        for gallery in benchmark.galleries:
            mated = np.isin(benchmark.probes.subjects, gallery.subjects)
            if not mated.any():
                raise DataError(f"{benchmark.name}: {gallery.name} contains none of the probes' people")
            people = len(np.unique(gallery.subjects))
            # Everybody is among as many people as there are.
            telling = [rank for rank in ranks if rank < people] or [min(ranks)]
            searched = _search(templates, gallery, benchmark.probes, max(telling), backend)
            by_rank, by_fpir = _rates(*searched, mated, benchmark.probes.subjects, telling, fpirs, replicates)
            entries.append(
                GallerySearch(
                    pooling=name,
                    gallery=gallery.name,
                    gallery_templates=len(gallery.templates),
                    gallery_people=people,
                    probes=len(mated),
                    mated=int(mated.sum()),
                    non_mated=int((~mated).sum()),
                    backend=backend,
                    rank=by_rank,
                    fnir_at_fpir=by_fpir,
                )
            )
    return entries


def _search(
    templates: NDArray[np.float32], gallery: Roster, probes: Roster, max_rank: int, backend: Backend
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """``(P,)`` best score of each probe, and ``(P,)`` rank of its person, 0 where it is beyond ``max_rank``."""
    # Whoever has rank r has fewer than r × most templates of others ahead. One more shows whether a tie goes on beyond.
    most = int(np.unique(gallery.subjects, return_counts=True)[1].max())
    depth = max_rank * most + 1
    result = find(templates[gallery.templates], templates[probes.templates], depth, backend)
    return result.scores[:, 0], mate_ranks(result, gallery.subjects, probes.subjects)


def _rates(
    best: NDArray[np.float32],
    rank: NDArray[np.int64],
    mated: NDArray[np.bool_],
    subjects: NDArray[np.int64],
    ranks: Sequence[int],
    fpirs: Sequence[float],
    replicates: int,
) -> tuple[dict[str, RankRate], dict[str, FnirAtFpir]]:
    targets = reachable(fpirs, int((~mated).sum()))
    drawn = np.array(list(_resampled(best, rank, mated, subjects, ranks, targets, replicates)))
    # A tiny set may lose all mated or all non-mated probes in a replicate.
    resampled = [column[~np.isnan(column)] for column in drawn.T]
    people = len(np.unique(subjects[mated]))
    closed = {
        str(k): RankRate(value=value, ci95=resampled_rate_interval(values, value, people))
        for (k, value), values in zip(
            rank_rates(rank[mated], ranks).items(), resampled[: len(ranks)], strict=True
        )
    }
    opened = {}
    for target, values in zip(targets, resampled[len(ranks) :], strict=True):
        point = fnir_at_fpir(best[mated], rank[mated], best[~mated], target)
        opened[f"{target:g}"] = FnirAtFpir(
            value=point.fnir,
            achieved_fpir=point.achieved_fpir,
            threshold=point.threshold if np.isfinite(point.threshold) else None,
            non_mated=point.non_mated,
            ci95=resampled_rate_interval(values, point.fnir, people),
        )
    return closed, opened


def _resampled(
    best: NDArray[np.float32],
    rank: NDArray[np.int64],
    mated: NDArray[np.bool_],
    subjects: NDArray[np.int64],
    ranks: Sequence[int],
    targets: Sequence[float],
    replicates: int,
) -> Iterator[list[float]]:
    """Rank rates, then FNIRs, of each replicate; NaN where it has no probes to count."""
    names, person = np.unique(subjects, return_inverse=True)
    found_within = [np.flatnonzero(mated & (rank >= 1) & (rank <= k)) for k in ranks]
    # Finds and non-mated probes, best first; a find counts where it stands above the first probe that must not pass.
    finds = np.flatnonzero(mated & (rank == 1))
    finds, others = (rows[np.argsort(-best[rows])] for rows in (finds, np.flatnonzero(~mated)))
    above = len(finds) - np.searchsorted(best[finds][::-1], best[others], side="right")
    above = np.append(above, len(finds))
    for counts in subject_counts(len(names), replicates, seed=0):
        weights = counts.astype(np.float64)[person]
        total = weights[mated].sum()
        with np.errstate(invalid="ignore"):
            rates = [weights[rows].sum() / total for rows in found_within]
            if targets:
                passed = np.cumsum(weights[others])
                counted = np.append(0.0, np.cumsum(weights[finds]))
                for target in targets:
                    stop = np.searchsorted(passed, np.floor(target * passed[-1] + 1e-9), side="right")
                    rates.append(1.0 - counted[above[stop]] / total if passed[-1] else np.nan)
        yield rates
