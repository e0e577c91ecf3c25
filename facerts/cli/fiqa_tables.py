"""The quality league as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from facerts.cli.group_tables import show_groups
from facerts.cli.output import rows_table

if TYPE_CHECKING:
    from facerts.evaluation.results.fiqa import FiqaSection


# Intervals of all columns would not fit on a terminal; the files have them.
WITH_INTERVALS = 3


def show_fiqa(sections: Mapping[str, FiqaSection]) -> None:
    """A table for each set of faces, the best quality first."""
    from facerts.report.fiqa_tables import league_table

    for name, section in sections.items():
        table = league_table(section)
        rows = [
            [
                f"{cell.text} {cell.small}".strip() if place < WITH_INTERVALS else cell.text
                for place, cell in enumerate(row)
            ]
            for row in table.rows
        ]
        title = f"{name}: {table.title or 'faces against non-faces'}".replace("\u00a0", " ")
        if rows:
            rows_table(title, table.columns, rows)
        if section.groups is not None:
            show_groups(section.groups)
