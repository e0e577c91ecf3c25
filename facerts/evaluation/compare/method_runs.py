"""Methods of a comparison: the results of one label are training runs of one method; and tables of methods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from facerts.errors import DataError
from facerts.evaluation.labeled import Measured, SavedResult
from facerts.evaluation.results import Result
from facerts.evaluation.results.comparison_result import ComparisonTable, TableCell, TableRow, Topic
from facerts.io.redact import redacted_paths
from facerts.metrics.paired import Difference

# A model's own scores of an image; those that need no model stand by themselves.
OWN_SCORES = ("quality", "norm")
TESTED = (
    "Bold: the best of its column, where the 95% interval of its paired difference from the second leaves out 0, not "
    "corrected for the number of columns."
)
UNTESTED = "Nothing is bold: no paired test was made of these numbers."
Section = TypeVar("Section")


@dataclass(frozen=True)
class MethodRuns:
    """One method."""

    label: str
    runs: tuple[SavedResult, ...]

    def shown(self, run: SavedResult) -> str:
        """The name of one of its runs among all runs."""
        return self.label if len(self.runs) == 1 else f"{self.label}, run {self.runs.index(run) + 1}"

    def cell(self, measure: Callable[[SavedResult], Measured | None]) -> TableCell | None:
        """The mean over the runs of a number that all of them have; None where a run lacks it."""
        measured = [value for value in map(measure, self.runs) if value is not None]
        if len(measured) < len(self.runs):
            return None
        values = [value.value for value in measured]
        alone = len(measured) == 1
        return TableCell(
            value=fmean(values),
            ci95=measured[0].ci95 if alone else None,
            range=None if alone else (min(values), max(values)),
            values=values,
            best=False,
        )


def methods_of(results: Sequence[SavedResult]) -> list[MethodRuns]:
    """Group results by their labels, in the order of the first of each.

    Results without a label of their own are methods by themselves, distinguished by their folders where the names of
    their models are not enough.
    """
    times = Counter(result.label for result in results)
    groups: dict[str | int, list[SavedResult]] = {}
    for number, result in enumerate(results):
        groups.setdefault(result.label if result.labeled else number, []).append(result)
    methods = []
    folders = [result.folder for result in results]
    places = dict(zip(folders, redacted_paths(folders), strict=True))
    for runs in groups.values():
        first = runs[0]
        clashes = not first.labeled and times[first.label] > 1
        _check_runs(runs)
        methods.append(MethodRuns(places[first.folder] if clashes else first.label, tuple(runs)))
    return methods


def _check_runs(runs: Sequence[SavedResult]) -> None:
    first, *others = runs
    of_model: dict[str, SavedResult] = {}
    for run in runs:
        model = run.content.model
        if model.sha256 in of_model:
            raise DataError(
                f"{run.label}: {of_model[model.sha256].folder} and {run.folder} contain results of the same "
                "model; several results of one label are training runs of one method, so use different labels"
            )
        of_model[model.sha256] = run
    expected = dict(_measured(first))
    for run in others:
        if run.content.model.method != first.content.model.method:
            raise DataError(
                f"{run.label}: {first.folder} is of method {first.content.model.method} and {run.folder} of "
                f"{run.content.model.method}; results of one label are runs of one method, so use different labels"
            )
        own = dict(_measured(run))
        for one, other, missing in (
            (run, first, expected.keys() - own.keys()),
            (first, run, own.keys() - expected.keys()),
        ):
            if missing:
                raise DataError(
                    f"{run.label}: {one.folder} has no {min(missing)}, which {other.folder} has; evaluate all runs of "
                    "one label on the same data, or give them other labels"
                )
        for name, data in expected.items():
            if own[name] != data:
                raise DataError(
                    f"{run.label}: {run.folder} was measured on other images than {first.folder} ({name}); evaluate "
                    "all runs of one label on the same data, or give them other labels"
                )


def _measured(result: SavedResult) -> Iterator[tuple[str, object]]:
    content = result.content
    for kind, name, sha256 in content.hashes():
        yield f"{kind} of {name}", sha256
    if content.ood is not None:
        yield "ood section", (content.ood.data_sha256, list(content.ood.faces), list(content.ood.others))


@dataclass(frozen=True)
class MethodRow:
    """Numbers of one method by column, None where a run lacks one; ``score`` is the image score they are of, if any."""

    method: MethodRuns
    score: str | None
    cells: Mapping[str, TableCell | None]


# A result, a score and a column to the number.
Measure = Callable[[SavedResult, str | None, str], Measured | None]
# Of two rows and a column: first minus second; None where no paired test can say.
Test = Callable[[MethodRow, MethodRow, str], Difference | None]


def table_of(
    topic: Topic, title: str, columns: Sequence[str], rows: Sequence[MethodRow], note: str
) -> ComparisonTable:
    """A table as comparison.json has it; all its numbers are shares."""
    return ComparisonTable(
        topic=topic,
        title=title,
        columns=list(columns),
        rows=[
            TableRow(
                method=row.method.label, score=row.score, runs=len(row.method.runs), cells=dict(row.cells)
            )
            for row in rows
        ],
        note=note,
    )


def row_of(method: MethodRuns, score: str | None, columns: Sequence[str], measure: Measure) -> MethodRow:
    """A row, from what a result says of a score and a column."""

    def cell(column: str) -> TableCell | None:
        return method.cell(lambda run: measure(run, score, column))

    return MethodRow(method, score, {column: cell(column) for column in columns})


def rows_of(
    method: MethodRuns, scores: Sequence[str], columns: Sequence[str], measure: Measure
) -> list[MethodRow]:
    """A row for each score; a row without numbers where there is none."""
    return [row_of(method, score, columns, measure) for score in scores or (None,)]


def mark_best(rows: Sequence[MethodRow], columns: Sequence[str], test: Test) -> str:
    """Mark the highest of every column where it is so by more than chance; returns what a note says of that."""
    tested = False
    for column in columns:
        measured = [(cell, row) for row in rows if (cell := row.cells[column]) is not None]
        ranked = sorted(measured, key=lambda one: -one[0].value)
        if len(ranked) < 2 or any(len(row.method.runs) > 1 for _, row in ranked):
            continue
        (best, first), (_, second), *_ = ranked
        difference = test(first, second, column)
        if difference is not None:
            tested = True
            best.best = difference.ci95[0] > 0
    return TESTED if tested else UNTESTED


def reading(methods: Sequence[MethodRuns], intervals: Sequence[str]) -> str:
    """How the numbers of a table are to be read; ``intervals`` are the units that were resampled, as text, if any."""
    sentences = ["In percent."]
    if intervals and any(len(method.runs) == 1 for method in methods):
        sentences.append(f"In brackets: 95% intervals, {' or '.join(dict.fromkeys(intervals))}.")
    if any(len(method.runs) > 1 for method in methods):
        sentences.append(
            "Of several training runs: their mean and, in parentheses, the lowest and the highest."
        )
    return " ".join(sentences)


def runs_of(methods: Sequence[MethodRuns]) -> Iterator[SavedResult]:
    """All runs of all methods."""
    return (run for method in methods for run in method.runs)


def sections_of(
    methods: Sequence[MethodRuns], sections: Callable[[Result], Mapping[str, Section]]
) -> dict[str, Section]:
    """Every benchmark that a run has a section of, with the section of the first run that has it."""
    first_sections: dict[str, Section] = {}
    for run in runs_of(methods):
        for name, section in sections(run.content).items():
            first_sections.setdefault(name, section)
    return first_sections


def joined(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
