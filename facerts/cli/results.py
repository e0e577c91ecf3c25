"""Results of ``facerts evaluate`` and ``facerts compare`` as tables on the terminal: those of the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from facerts.cli.output import print_json, print_sentence, print_table, warn

if TYPE_CHECKING:
    from facerts.evaluation.comparison import Comparison
    from facerts.evaluation.measure import Evaluation
    from facerts.evaluation.result import Result

# Columns of a wide table with intervals: more would not fit on a terminal; the files have them.
WIDE, WITH_INTERVALS = 8, 3


def show(result: Result, *kinds: str, json: bool = False) -> None:
    """Warn of problems with the data, and print the tables of these kinds of evaluations, or their part of the file."""
    for kind in kinds:
        for name, section in result.of_kind(kind).items():
            for note in section.notes:
                warn(f"{name}: {note}")
    if json:
        every = {kind: {name: one.to_json() for name, one in result.of_kind(kind).items()} for kind in kinds}
        print_json(every[kinds[0]] if len(kinds) == 1 else every)
        return
    for kind in kinds:
        _show_sections(result.of_kind(kind))


def show_comparison(comparison: Comparison) -> None:
    """The tables, and differences from the reference."""
    print_sentence(comparison.text)
    _show_sections({one.title: one for one in comparison.sections}, findings=False)
    difference = f"Difference from {comparison.reference.label}, in percentage points"
    _show_sections({f"{one.title}: {difference}": one for one in comparison.differences}, findings=False)


def _show_sections(sections: Mapping[str, Evaluation], *, findings: bool = True) -> None:
    from facerts.report.table import measure_tables

    for name, section in sections.items():
        for table in measure_tables([("", section)]):
            wide = len(table.columns) - table.words > WIDE
            rows = [
                [
                    cell if place < table.words + WITH_INTERVALS or not wide else cell._replace(small="")
                    for place, cell in enumerate(row)
                ]
                for row in table.rows
            ]
            intervals = f" (95% intervals: {section.interval})" if section.interval else ""
            title = f"{name}: {table.title}" if table.title else name
            print_table(replace(table, rows=rows), title + intervals)
        if findings:
            for sentence in section.findings:
                print_sentence(sentence)
