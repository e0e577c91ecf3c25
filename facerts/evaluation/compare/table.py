"""Tables of a comparison: a row for each method and score, and which numbers are best by more than chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from facerts.evaluation.compare.methods import Cell, Method, Told
from facerts.evaluation.labeled import Saved
from facerts.metrics.paired import Difference

# A model's own scores of a picture; those that need no model stand by themselves.
OWN_SCORES = ("quality", "norm")

TESTED = (
    "Bold: the best of its column, where the 95 % interval of its paired difference from the second leaves out 0, not "
    "corrected for the number of columns."
)
UNTESTED = "Nothing is bold: no paired test was made of these numbers."


@dataclass
class Row:
    """Numbers of one method.

    Attributes:
        method: whose.
        score: which score of a picture they are of; None where they are of none.
        cells: ``Method.cell`` by column.
        best: columns where this row is the best by more than chance.
    """

    method: Method
    score: str | None
    cells: dict[str, Cell | None]
    best: set[str] = field(default_factory=set)


# Of two rows and a column: first minus second; None where no paired test can say.
Test = Callable[[Row, Row, str], Difference | None]


@dataclass(frozen=True)
class Table:
    """Rows by method, columns by number.

    Attributes:
        topic: what it is of: "verification", "ood", "reject", "embedding".
        title: of the table.
        columns: names of the numbers, all of which are shares.
        rows: in the order of the methods.
        note: in words, what the numbers are.
    """

    topic: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    note: str

    def told(self) -> dict[str, Any]:
        """As comparison.json has it."""
        rows = [
            {
                "method": row.method.label,
                "score": row.score,
                "runs": len(row.method.runs),
                "cells": {
                    column: None if cell is None else {**cell, "best": column in row.best}
                    for column, cell in row.cells.items()
                },
            }
            for row in self.rows
        ]
        return {
            "topic": self.topic,
            "title": self.title,
            "columns": list(self.columns),
            "rows": rows,
            "note": self.note,
        }


def row_of(
    method: Method,
    score: str | None,
    columns: Sequence[str],
    measure: Callable[[Saved, str | None, str], Told | None],
) -> Row:
    """A row, from what a result says of a score and a column."""

    def cell(column: str) -> Cell | None:
        return method.cell(lambda run: measure(run, score, column))

    return Row(method, score, {column: cell(column) for column in columns})


def rows_of(
    method: Method,
    scores: Sequence[str],
    columns: Sequence[str],
    measure: Callable[[Saved, str | None, str], Told | None],
) -> list[Row]:
    """A row for each score; a row without numbers where there is none."""
    if not scores:
        return [row_of(method, None, columns, measure)]
    return [row_of(method, score, columns, measure) for score in scores]


def mark_best(rows: Sequence[Row], columns: Sequence[str], test: Test) -> bool:
    """Find the best of every column, higher being better, where it is so by more than chance.

    Returns:
        Whether any column could be tested.
    """
    tested = False
    for column in columns:
        measured = [(cell["value"], row) for row in rows if (cell := row.cells[column]) is not None]
        ranked = [row for _, row in sorted(measured, key=lambda one: -one[0])]
        if len(ranked) < 2 or any(len(row.method.runs) > 1 for row in ranked):
            continue
        difference = test(ranked[0], ranked[1], column)
        if difference is not None:
            tested = True
            if difference.ci95[0] > 0:
                ranked[0].best.add(column)
    return tested


def reading(methods: Sequence[Method], intervals: Sequence[str]) -> str:
    """How the numbers of a table are to be read.

    Args:
        methods: of its rows.
        intervals: what was resampled, in words; empty where there are no intervals.
    """
    told = ["In percent."]
    if intervals and any(len(method.runs) == 1 for method in methods):
        told.append(f"In brackets: 95 % intervals, {' or '.join(dict.fromkeys(intervals))}.")
    if any(len(method.runs) > 1 for method in methods):
        told.append("Of several training runs: their mean and, in parentheses, the lowest and the highest.")
    return " ".join(told)


def runs_of(methods: Sequence[Method]) -> Iterator[Saved]:
    """All runs of all methods."""
    return (run for method in methods for run in method.runs)


def sections_of(methods: Sequence[Method], kind: str) -> dict[str, Any]:
    """Every benchmark that a run has a section of, with the section of the first run that has it."""
    found: dict[str, Any] = {}
    for run in runs_of(methods):
        for name, section in run.content.get(kind, {}).items():
            found.setdefault(name, section)
    return found


def joined(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
