"""Verification of several methods: Table 3 of the RTS paper, and TAR at FAR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from facerts.evaluation.compare.differences import PairStatistic, differences_of_pairs, same_pairs
from facerts.evaluation.compare.method_runs import (
    UNTESTED,
    MethodRow,
    MethodRuns,
    Test,
    joined,
    mark_best,
    reading,
    row_of,
    runs_of,
    sections_of,
    table_of,
)
from facerts.evaluation.labeled import Measured, SavedResult, by_cosine, mean_of
from facerts.evaluation.results.comparison_result import ComparisonTable
from facerts.evaluation.results.verification_result import PairNumbers, VerificationResult
from facerts.metrics.paired import Difference

MEAN = "mean"
AUROC = "AUROC"
# For a page that shows FNMR at FMR instead.
TAR_IN_WORDS = "True accept rate at the lowest threshold where the false accept rate is not above the target"


def verification_tables(methods: Sequence[MethodRuns]) -> list[ComparisonTable]:
    """Accuracy on every benchmark and the mean of all; TAR at FAR on each, of its pairs and of all pairs."""
    sections = sections_of(methods, lambda result: result.verification)
    folded = {name: section for name, section in sections.items() if section.accuracy is not None}
    tables = [_accuracy(methods, folded)] if folded else []
    for name, section in sections.items():
        tables.append(_tar(methods, name, section, every=False))
        with_all = [
            numbers for run in runs_of(methods) if (numbers := _numbers(run, name, every=True)) is not None
        ]
        if with_all:
            tables.append(_tar(methods, name, with_all[0], every=True))
    return tables


def accuracy_of(run: SavedResult, name: str) -> Measured | None:
    """Accuracy by folds on a benchmark, where the run has it."""
    section = run.content.verification.get(name)
    if section is None or section.accuracy is None:
        return None
    return Measured(section.accuracy.value, section.accuracy.ci95)


def mean_accuracy(run: SavedResult, names: Sequence[str]) -> Measured | None:
    """Mean accuracy over benchmarks, where the run has all of them."""
    each = [accuracy for name in names if (accuracy := accuracy_of(run, name)) is not None]
    return mean_of(each) if len(each) == len(names) else None


def accuracy_sets(methods: Sequence[MethodRuns]) -> list[str]:
    """Benchmarks of the mean: those with an accuracy by folds whose pairs are compared by the cosine."""
    sections = sections_of(methods, lambda result: result.verification)
    return [name for name, section in sections.items() if section.accuracy is not None and by_cosine(section)]


def _accuracy(methods: Sequence[MethodRuns], sections: Mapping[str, VerificationResult]) -> ComparisonTable:
    names = list(sections)
    averaged = [name for name in names if by_cosine(sections[name])]
    columns = [*names, MEAN] if len(averaged) > 1 else names

    def measure(run: SavedResult, _: str | None, column: str) -> Measured | None:
        return mean_accuracy(run, averaged) if column == MEAN else accuracy_of(run, column)

    rows = [row_of(method, None, columns, measure) for method in methods]
    bold = mark_best(rows, names, _paired(lambda column: (column, 1e-3, "accuracy")))
    counts = "; ".join(
        f"{name}: {section.genuine:,} genuine and {section.impostors:,} impostor pairs of "
        f"{section.images:,} images"
        for name, section in sections.items()
    )
    mean = (
        f" The mean is over {joined(averaged)}; its interval takes them as independent, and it is not tested."
        if MEAN in columns
        else ""
    )
    note = (
        "Accuracy by folds: each fold at the threshold that decides most pairs of the others rightly. "
        f"{counts}. {reading(methods, [section.interval for section in sections.values()])}{mean} "
        f"{bold}"
    )
    return table_of("verification", "Verification accuracy", columns, rows, note)


def _tar(methods: Sequence[MethodRuns], name: str, section: PairNumbers, *, every: bool) -> ComparisonTable:
    having = [
        numbers for run in runs_of(methods) if (numbers := _numbers(run, name, every=every)) is not None
    ]
    fars = {far for numbers in having for far in numbers.tar_at_far}
    rates = {f"TAR at FAR {far}": far for far in sorted(fars, key=float, reverse=True)}
    columns = [*rates, AUROC]

    def measure(run: SavedResult, _: str | None, column: str) -> Measured | None:
        numbers = _numbers(run, name, every=every)
        if numbers is None:
            return None
        if column == AUROC:
            return Measured(numbers.auroc, None if numbers.ci95 is None else numbers.ci95.auroc)
        point = numbers.tar_at_far.get(rates[column])
        return None if point is None else Measured(point.value, point.ci95)

    def tested_as(column: str) -> tuple[str, float, PairStatistic]:
        return (name, 1e-3, "auroc") if column == AUROC else (name, float(rates[column]), "tar_at_far")

    rows = [row_of(method, None, columns, measure) for method in methods]
    bold = UNTESTED if every else mark_best(rows, columns, _paired(tested_as))
    note = (
        f"{TAR_IN_WORDS}, on {'every pair of its images' if every else 'its pairs'}: {section.genuine:,} genuine and "
        f"{section.impostors:,} impostor pairs. {reading(methods, [section.interval])} {bold}"
    )
    return table_of(
        "verification", f"Verification on {name}{', all pairs' if every else ''}", columns, rows, note
    )


def _paired(tested_as: Callable[[str], tuple[str, float, PairStatistic]]) -> Test:
    """The test of a column that is a benchmark's number at a FAR."""

    def test(one: MethodRow, other: MethodRow, column: str) -> Difference | None:
        name, far, statistic = tested_as(column)
        first, second = one.method.runs[0], other.method.runs[0]
        if not same_pairs(first, second, name):
            return None
        return differences_of_pairs(first, second, name, far)[statistic]

    return test


def _numbers(run: SavedResult, name: str, *, every: bool) -> PairNumbers | None:
    """What a run has of a benchmark's pairs, or of all pairs of its images."""
    section = run.content.verification.get(name)
    return section.all_pairs if every and section is not None else section
