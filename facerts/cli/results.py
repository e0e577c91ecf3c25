"""Results of ``facerts evaluate`` and ``facerts compare`` as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from facerts.cli.output import rows_table

if TYPE_CHECKING:
    from facerts.evaluation.results import Comparison
    from facerts.evaluation.results.comparison import PairedDifference, TableCell
    from facerts.evaluation.results.corruptions import CorruptionResult
    from facerts.evaluation.results.identification import FnirAtFpir, IdentificationResult, RankRate
    from facerts.evaluation.results.ood import OodResult, TprName
    from facerts.evaluation.results.reject import AreaEnd, RejectResult
    from facerts.evaluation.results.verification import (
        AccuracyResult,
        PairNumbers,
        TarAtFar,
        VerificationResult,
    )
    from facerts.metrics.intervals import Interval

SHARES = (0.0, 0.05, 0.1, 0.2)
AREA_ENDS: tuple[AreaEnd, ...] = ("0.2", "0.95")
TPRS: tuple[TprName, ...] = ("0.90", "0.95")


def show_verification(sections: Mapping[str, VerificationResult]) -> None:
    """Benchmarks by their pairs, and by all pairs where these were measured."""
    entries: list[tuple[str, AccuracyResult | None, PairNumbers]] = []
    for name, section in sections.items():
        entries.append((name, section.accuracy, section))
        if section.all_pairs is not None:
            entries.append((f"{name}, all pairs", None, section.all_pairs))
    fars = sorted({far for *_, numbers in entries for far in numbers.tar_at_far}, key=float, reverse=True)
    rows = [
        [
            name,
            _measured(accuracy),
            f"{numbers.auroc:.4f}",
            f"{numbers.eer:.4f}",
            *[_measured(numbers.tar_at_far.get(far)) for far in fars],
            f"{numbers.genuine:,} / {numbers.impostors:,}",
        ]
        for name, accuracy, numbers in entries
    ]
    header = [
        "benchmark",
        "accuracy",
        "AUROC",
        "EER",
        *[f"TAR@FAR {far}" for far in fars],
        "genuine / impostors",
    ]
    intervals = " and ".join(dict.fromkeys(numbers.interval for *_, numbers in entries))
    rows_table(f"Verification (95 % intervals: {intervals})", header, rows)


def show_reject(sections: Mapping[str, Sequence[RejectResult]]) -> None:
    """FNMR by the share rejected, a row for each score, set of pairs and convention."""
    rows, fmr = [], 0.0
    for name, curves in sections.items():
        for curve in curves:
            fmr = curve.fmr
            rows.append(
                [
                    f"{name}{', all pairs' if curve.pairs == 'all' else ''}, {curve.by}, {curve.convention}",
                    *[f"{curve.fnmr[curve.index_at(share)]:.4f}" for share in SHARES],
                    *[
                        _number(curve.area[end], None if curve.ci95 is None else curve.ci95[end])
                        for end in AREA_ENDS
                    ],
                    f"{curve.random_area:.4f}",
                    f"{curve.oracle_area['0.2']:.4f}",
                    f"{curve.impostors:,}",
                ]
            )
    header = [
        "benchmark, score, threshold",
        "0 %",
        "5 %",
        "10 %",
        "20 %",
        "area to 20 %",
        "to 95 %",
        "random",
    ]
    rows_table(f"FNMR at FMR {fmr:g} by share rejected", [*header, "best, to 20 %", "impostors"], rows)


def show_identification(sections: Mapping[str, IdentificationResult]) -> None:
    """A row for each gallery and pooling."""
    searches = [(name, search) for name, section in sections.items() for search in section.searches]
    ranks = list(dict.fromkeys(rank for _, search in searches for rank in search.rank))
    fpirs = list(dict.fromkeys(fpir for _, search in searches for fpir in search.fnir_at_fpir))
    rows = [
        [
            f"{name}, {search.gallery}, {search.pooling}",
            *[_measured(search.rank.get(rank)) for rank in ranks],
            *[_measured(search.fnir_at_fpir.get(fpir)) for fpir in fpirs],
            f"{search.gallery_templates:,}",
            f"{search.mated:,} / {search.non_mated:,}",
        ]
        for name, search in searches
    ]
    header = ["gallery, pooling", *[f"rank {k}" for k in ranks], *[f"FNIR@FPIR {f}" for f in fpirs]]
    rows_table(
        "Identification (95 % intervals over people)", [*header, "templates", "mated / non-mated"], rows
    )


def show_ood(section: OodResult) -> None:
    """A row for each score and source of faces."""
    rows = []
    for score, pooled in section.by.items():
        # One source by itself is all of them.
        everything = {"all": pooled} if len(section.faces) > 1 else {}
        for source, numbers in {**everything, **pooled.per_source}.items():
            rows.append(
                [
                    f"{score}, {source}",
                    _number(numbers.auroc, numbers.ci95["auroc"]),
                    *[_number(numbers.tnr_at_tpr[tpr], numbers.ci95[tpr]) for tpr in TPRS],
                    f"{numbers.aupr:.4f}",
                    f"{numbers.fpr95:.4f}",
                ]
            )
    faces, others = sum(section.faces.values()), sum(section.others.values())
    title = f"{faces:,} faces against {others:,} non-faces (95 % intervals over images)"
    rows_table(title, ["score, faces", "AUROC", "TNR@TPR90", "TNR@TPR95", "AUPR", "FPR95"], rows)


def show_corruptions(sections: Mapping[str, CorruptionResult]) -> None:
    """Medians by severity, a row for each kind and score."""
    for name, section in sections.items():
        rows = []
        for kind, steps in section.kinds.items():
            rows.append([f"{kind}, cosine to clean", *[f"{value:.3f}" for value in steps.cosine.p50], "", ""])
            for score, measured in steps.by.items():
                medians = [f"{value:.4g}" for value in measured.p50]
                falls = "yes" if measured.monotone else "no"
                rows.append([f"{kind}, {score}", *medians, falls, f"{measured.auroc[-1]:.3f}"])
        header = ["kind, median of", *[f"{severity:g}" for severity in section.severity]]
        title = f"{name}: {section.images:,} faces corrupted, severity 0 to 1"
        rows_table(title, [*header, "falls", "clean above worst, AUROC"], rows)


def show_comparison(comparison: Comparison) -> None:
    """The tables, and differences from the reference: a row for each model and benchmark."""
    from facerts.report.markdown import words_of

    for table in comparison.tables:
        words = words_of(table)
        cells = [
            [", ".join(column[number] for column in words.values()), *map(_cell, row.cells.values())]
            for number, row in enumerate(table.rows)
        ]
        rows_table(f"{table.title} (%)", [", ".join(words), *table.columns], cells)
    rows = [
        [
            f"{name}, {row.model.label}",
            *[_difference(difference) for difference in (row.accuracy, row.auroc, row.tar_at_far)],
        ]
        for name, entries in comparison.verification.items()
        for row in entries
    ]
    reference = comparison.reference.label
    if rows:
        header = ["benchmark, model", "accuracy", "AUROC", "TAR at the lowest FAR"]
        rows_table(f"Difference from {reference} (95 % intervals, p)", header, rows)
    rows = [
        [
            f"{score}, {row.model.label}",
            _difference(differences.auroc),
            _difference(differences.tnr_at_tpr),
        ]
        for row in comparison.ood
        for score, differences in row.by.items()
    ]
    if rows:
        rows_table(
            f"Faces against non-faces, difference from {reference}",
            ["score, model", "AUROC", "TNR@TPR95"],
            rows,
        )


def _cell(cell: TableCell | None) -> str:
    from facerts.report.markdown import spread

    return "–" if cell is None else f"{100 * cell.value:.2f} {spread(cell)}".rstrip()


def _difference(difference: PairedDifference) -> str:
    low, high = difference.ci95
    return f"{difference.value:+.4f} [{low:+.4f}, {high:+.4f}] p {difference.p_value:.3f}"


def _measured(rate: AccuracyResult | TarAtFar | RankRate | FnirAtFpir | None) -> str:
    return "–" if rate is None else _number(rate.value, rate.ci95)


def _number(value: float, interval: Interval | None) -> str:
    return f"{value:.4f}" if interval is None else f"{value:.4f} [{interval[0]:.4f}, {interval[1]:.4f}]"
