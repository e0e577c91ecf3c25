"""Tables of a comparison: a row for each method and score, and which numbers are best by more than chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from facerts.evaluation.compare.method_runs import MeasuredValue, MethodRuns
from facerts.evaluation.labeled import SavedResult
from facerts.evaluation.results import Result
from facerts.evaluation.results.comparison_result import ComparisonTable, TableCell, TableRow, Topic
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
class MethodRow:
    """Numbers of one method by column, None where a run lacks one; ``score`` is the image score they are of, if any."""

    method: MethodRuns
    score: str | None
    cells: Mapping[str, TableCell | None]


# A result, a score and a column to the number.
Measure = Callable[[SavedResult, str | None, str], MeasuredValue | None]
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


def mark_best(rows: Sequence[MethodRow], columns: Sequence[str], test: Test) -> bool:
    """Mark the highest of every column where it is so by more than chance; returns whether any could be tested."""
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
    return tested


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
