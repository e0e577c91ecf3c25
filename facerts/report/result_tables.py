"""The tables of an evaluation's results: one definition for the command line and the page.

Each takes results with the labels of their models; an empty label stands for the only model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from statistics import fmean

from facerts.evaluation.results.corruptions_result import CorruptionResult, RankCorrelations
from facerts.evaluation.results.identification_result import IdentificationResult
from facerts.evaluation.results.ood_result import OodResult
from facerts.evaluation.results.reject_result import PairSet, RejectResult
from facerts.evaluation.results.verification_result import PairNumbers, VerificationResult
from facerts.report.table import NONE, Cell, Table, by_number, complement, count, rate, share, words

REJECTED = (0.0, 0.05, 0.1, 0.2)
# Of the corruption benchmark, the lowest severity that is shown besides 1.
SHOWN_SEVERITY = 0.5
GROUPS = ("all", "trained", "held_out")


def verification_table(results: Sequence[tuple[str, VerificationResult]]) -> Table:
    """A column for each model's pairs, and for all pairs of its images where these were measured."""
    measured: dict[str, tuple[VerificationResult | None, PairNumbers]] = {}
    for label, section in results:
        measured[label or "listed pairs"] = (section, section)
        if section.all_pairs is not None:
            measured[f"{label}, all pairs" if label else "all pairs"] = (None, section.all_pairs)
    fars = sorted({far for _, numbers in measured.values() for far in numbers.tar_at_far}, key=float)[::-1]
    columns = []
    for listed, numbers in measured.values():
        accuracy = None if listed is None else listed.accuracy
        columns.append(
            {
                "accuracy": NONE if accuracy is None else share(accuracy.value, accuracy.ci95),
                "AUROC": share(numbers.auroc, numbers.ci95.auroc if numbers.ci95 else None),
                "EER": share(numbers.eer, numbers.ci95.eer if numbers.ci95 else None),
                **{
                    f"FNMR at FMR {rate(far)}": fnmr(numbers, far) if far in numbers.tar_at_far else NONE
                    for far in fars
                },
                "genuine pairs": count(numbers.genuine),
                "impostor pairs": count(numbers.impostors),
            }
        )
    return by_number(list(measured), columns)


def fnmr(numbers: PairNumbers, far: str) -> Cell:
    """FNMR at an FMR, which is 1 − TAR at this FAR."""
    point = numbers.tar_at_far[far]
    return share(1 - point.value, complement(point.ci95))


def identification_table(results: Sequence[tuple[str, IdentificationResult]]) -> Table:
    """A row for each gallery and pooling."""
    searches = [(label, search) for label, section in results for search in section.searches]
    ranks = list(dict.fromkeys(rank for _, search in searches for rank in search.rank))
    fpirs = list(dict.fromkeys(fpir for _, search in searches for fpir in search.fnir_at_fpir))
    rows = []
    for label, search in searches:
        points = [*map(search.rank.get, ranks), *map(search.fnir_at_fpir.get, fpirs)]
        rows.append(
            [
                *words(label, search.gallery, search.pooling.replace("_", " ")),
                *(NONE if point is None else share(point.value, point.ci95) for point in points),
                *map(count, (search.gallery_people, search.mated, search.non_mated)),
            ]
        )
    columns = [*(f"rank {rank}" for rank in ranks), *(f"FNIR at FPIR {rate(fpir)}" for fpir in fpirs)]
    header = ["model", "gallery", "pooling", *columns, "people", "mated", "non-mated"]
    return Table(header, rows, words=3).without_empty_words()


def reject_table(results: Sequence[tuple[str, Sequence[RejectResult]]], pairs: PairSet) -> Table:
    """FNMR by the share rejected, a row for each model and score; no rows where none was measured so."""
    columns = [f"{rate(rejected)} left out" for rejected in REJECTED]
    header = ["model", "score", *columns, "pAUC to 20%", "pAUC to 95%", "best pAUC to 20%"]
    rows = [
        [
            *words(label, curve.by),
            *(fnmr_left(curve, rejected) for rejected in REJECTED),
            share(curve.area["0.2"], curve.ci95 and curve.ci95["0.2"]),
            share(curve.area["0.95"], curve.ci95 and curve.ci95["0.95"]),
            share(curve.oracle_area["0.2"]),
        ]
        for label, curves in results
        for curve in curves
        if curve.pairs == pairs
    ]
    return Table(header, rows, words=2).without_empty_words()


def fnmr_left(curve: RejectResult, rejected: float) -> Cell:
    """FNMR of what remains when a share is rejected, with its interval."""
    place = curve.index_at(rejected)
    ends = curve.fnmr_ci95
    return share(curve.fnmr[place], ends and (ends[0][place], ends[1][place]))


def ood_table(section: OodResult) -> Table:
    """A row for each score and source of faces; one source by itself is all of them."""
    rows = []
    for score, pooled in section.by.items():
        sources = {**({"all": pooled} if len(section.faces) > 1 else {}), **pooled.per_source}
        rows += [
            [
                *words(score, source),
                share(numbers.auroc, numbers.ci95["auroc"]),
                share(numbers.tnr_at_tpr["0.90"], numbers.ci95["0.90"]),
                share(numbers.tnr_at_tpr["0.95"], numbers.ci95["0.95"]),
                share(numbers.aupr),
            ]
            for source, numbers in sources.items()
        ]
    return Table(["score", "faces", "AUROC", "TNR at TPR 90%", "TNR at TPR 95%", "AUPR"], rows, words=2)


def corruption_tables(results: Sequence[tuple[str, CorruptionResult]]) -> list[Table]:
    """How scores follow the cosines, and what becomes of each kind of change by the model's first score."""
    first = results[0][1]
    shown = [first.severity[bisect_left(first.severity, SHOWN_SEVERITY)], first.severity[-1]]

    def cells(section: CorruptionResult, numbers: Sequence[float] | None, form: str = ".0%") -> list[Cell]:
        found = dict(zip(section.severity, numbers or [], strict=False))
        return [Cell(f"{found[severity]:{form}}") if severity in found else NONE for severity in shown]

    def mean(lists: Sequence[Sequence[float] | None]) -> list[float]:
        return [fmean(values) for values in zip(*(numbers or [] for numbers in lists), strict=False)]

    overall = []
    for label, section in results:
        kinds = section.kinds.values()
        for score in section.thresholds:
            non_faces = [kind.not_a_face for kind in kinds] if score == section.first else []
            overall.append(
                [
                    *words(label, score),
                    *_correlations(section.rank_correlation.get(score)),
                    *cells(section, mean([kind.by[score].kept for kind in kinds])),
                    *cells(section, mean(non_faces)),
                ]
            )
        for recognizer, agreement in section.agreement.items():
            empty = cells(section, None) * 2
            overall.append([*words(label, f"cosine of {recognizer}"), *_correlations(agreement), *empty])
    # From the least to the most that a change costs: percentiles and what is kept should fall likewise.
    by_cost = sorted(first.kinds, key=lambda name: -(first.kinds[name].cosine or [0.0])[-1])
    rows = [
        [
            *words(name.replace("_", " ") + " (held out)" * kind.held_out, label),
            *cells(section, kind.cosine, ".2f"),
            *cells(section, kind.by[section.first].percentile, ".0f"),
            *cells(section, kind.by[section.first].kept),
            *cells(section, kind.not_a_face),
        ]
        for name in by_cost
        for label, section in results
        if (kind := section.kinds.get(name)) is not None
    ]

    def header(*names: str) -> list[str]:
        return [f"{name} at {severity:g}" for name in names for severity in shown]

    correlated = [f"ρ, {group.replace('_', ' ')}" for group in GROUPS]
    title = "Rank correlation ρ with the cosine, and shares of the images"
    by_kind = ["kind", "model", *header("cosine", "percentile", "kept", "not a face")]
    tables = [
        Table(["model", "score", *correlated, *header("kept", "not a face")], overall, words=2, title=title),
        Table(by_kind, rows, words=2, title=f"Kinds of change, by {first.first}", folded=True),
    ]
    return [table.without_empty_words() for table in tables]


def _correlations(found: RankCorrelations | None) -> list[Cell]:
    each = [getattr(found, group, None) for group in GROUPS]
    return [
        NONE if one is None else Cell(f"{one.value:.2f}", f"[{one.ci95[0]:.2f}, {one.ci95[1]:.2f}]")
        for one in each
    ]
