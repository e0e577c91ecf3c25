"""Embeddings on a benchmark of templates: identification (1:N)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.template_benchmark import Roster, TemplateBenchmark
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import DataError
from facerts.evaluation.measure import Evaluation, Measure
from facerts.evaluation.pair_verification import pooled
from facerts.evaluation.wording import against, measured, rate
from facerts.metrics.identification import fnir_at_fpir, mate_ranks, rank_rates, search
from facerts.metrics.intervals import resampled_rate_interval, subject_counts
from facerts.metrics.verification import reachable

FNIR = "FNIR at FPIR "


def identification_of(
    outputs: FaceOutputs,
    benchmark: TemplateBenchmark,
    *,
    ranks: Sequence[int] = (1, 5, 10),
    fpirs: Sequence[float] = (0.01, 0.1),
    replicates: int = 500,
) -> Evaluation:
    """Search for the benchmark's probes in each of its galleries, with each pooling.

    A probe is mated where its person is in the gallery. Ranks are of people among people. Intervals come from a
    bootstrap that draws the people of the probes, each with all of its probes; the threshold at an FPIR is found
    anew in every replicate.

    Args:
        ranks: of these, those below the number of the gallery's people are measured, or the first.
        fpirs: rates for the open set; those at which not even one non-mated probe may pass are left out.
    """
    if benchmark.probes is None or not benchmark.galleries:
        missing = "galleries" if benchmark.probes is not None else "probes"
        raise DataError(f"{benchmark.name}: identification needs galleries and probes, and it has no {missing}")
    measures: list[Measure] = []
    for pooling, templates in pooled(outputs, benchmark).items():
        for gallery in benchmark.galleries:
            mated = np.isin(benchmark.probes.subjects, gallery.subjects)
            if not mated.any():
                raise DataError(f"{benchmark.name}: {gallery.name} contains none of the probes' people")
            people = len(np.unique(gallery.subjects))
            # Everybody is among as many people as there are.
            telling = [rank for rank in ranks if rank < people] or [min(ranks)]
            searched = _search(templates, gallery, benchmark.probes, max(telling))
            rates = _rates(*searched, mated, benchmark.probes.subjects, telling, fpirs, replicates)
            sizes = {"people": people, "mated": mated.sum(), "non-mated": (~mated).sum()}
            counts = [Measure(name=name, value=float(size), format="count") for name, size in sizes.items()]
            of = {"gallery": gallery.name, "pooling": pooling.replace("_", " ")}
            measures += [one.model_copy(update={"of": of}) for one in (*rates, *counts)]
    measures[0].headline = True
    interval = "bootstrap over the probes' people"
    return Evaluation(
        title="Identification: who is it",
        images=len(benchmark.images),
        interval=interval,
        text="Rank k: the person searched for is among the k most similar people. FNIR at FPIR: the share of mated "
        "searches that fail at the threshold that this share of the searches for strangers reaches. In brackets: "
        f"95% intervals, {interval}.",
        findings=list(_findings(measures)),
        measures=measures,
    )


def _findings(measures: Sequence[Measure]) -> Iterator[str]:
    """Of the first search: its lowest rank and its lowest FPIR."""
    first = {one.name: one for one in measures if one.of == measures[0].of}
    rank, people = int(measures[0].name.removeprefix("rank ")), round(first["people"].value or 0)
    place = "first" if rank == 1 else f"among the first {rank}"
    ends = measures[0].ci95 or (0.0, 0.0)
    yield (
        f"Among {people:,} people it ranks the right one {place} in {measured(measures[0].value, ends)} of "
        f"{measures[0].n:,} searches{against(ends, rank / max(people, 1))}."
    )
    for name, missed in first.items():
        if name.startswith(FNIR):
            yield (
                f"Where {name.removeprefix(FNIR)} of the searches for strangers may find somebody, it misses "
                f"{measured(missed.value, missed.ci95)} of the enrolled."
            )
            return


def _search(
    templates: NDArray[np.float32], gallery: Roster, probes: Roster, max_rank: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """``(P,)`` best score of each probe, and ``(P,)`` rank of its person, 0 where it is beyond ``max_rank``."""
    # Whoever has rank r has fewer than r × most templates of others ahead. One more shows whether a tie goes on beyond.
    most = int(np.unique(gallery.subjects, return_counts=True)[1].max())
    depth = max_rank * most + 1
    result = search(templates[gallery.templates], templates[probes.templates], depth)
    return result.scores[:, 0], mate_ranks(result, gallery.subjects, probes.subjects)


def _rates(
    best: NDArray[np.float32],
    rank: NDArray[np.int64],
    mated: NDArray[np.bool_],
    subjects: NDArray[np.int64],
    ranks: Sequence[int],
    fpirs: Sequence[float],
    replicates: int,
) -> list[Measure]:
    targets = reachable(fpirs, int((~mated).sum()))
    drawn = np.array(list(_resampled(best, rank, mated, subjects, ranks, targets, replicates)))
    # A tiny set may lose all mated or all non-mated probes in a replicate.
    resampled = [column[~np.isnan(column)] for column in drawn.T]
    people, searches = len(np.unique(subjects[mated])), int(mated.sum())
    rates = [
        Measure(
            name=f"rank {k}",
            value=value,
            ci95=resampled_rate_interval(values, value, people),
            n=searches,
            better="higher",
        )
        for (k, value), values in zip(rank_rates(rank[mated], ranks).items(), resampled, strict=False)
    ]
    for target, values in zip(targets, resampled[len(ranks) :], strict=True):
        point = fnir_at_fpir(best[mated], rank[mated], best[~mated], target)
        rates.append(
            Measure(
                name=f"{FNIR}{rate(target)}",
                value=point.fnir,
                ci95=resampled_rate_interval(values, point.fnir, people),
                n=searches,
                better="lower",
                threshold=point.threshold if np.isfinite(point.threshold) else None,
                passing=round(point.achieved_fpir * point.non_mated),
            )
        )
    return rates


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
