"""Rows of scoring as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from facerts.cli.output import stdout, text_cell

if TYPE_CHECKING:
    from facerts.scoring import Row

# Columns of a terminal below which percentiles must do.
NARROW = 80


def print_rows(rows: Sequence[Row], keep: float | None = None) -> None:
    """Print one line per row; columns that no row has a value for are left out.

    Args:
        keep: the share of the calibration faces that the threshold keeps, if there is one.
    """
    table = Table()
    columns = {
        "image": [text_cell(row.path) for row in rows],
        "face": [_cell(row.face, "d") for row in rows],
        # Rounded down, so that what is below a threshold does not look as if it reached it.
        "percentile": [_cell(None if row.percentile is None else int(row.percentile), "d") for row in rows],
        "quality": [_cell(row.quality, ".3f") for row in rows],
        "accepted": [_accepted(row.accepted) for row in rows],
        "note": [_note(row, keep) for row in rows],
    }
    if stdout.width < NARROW and any(row.percentile is not None for row in rows):
        del columns["quality"]
    shown = {name: cells for name, cells in columns.items() if name == "image" or any(map(len, cells))}
    for name in shown:
        text = name in ("image", "note")
        table.add_column(name, justify="left" if text else "right", overflow="fold", no_wrap=not text)
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*cells)
    stdout.print(table)


def _cell(value: float | None, layout: str) -> Text:
    return Text("" if value is None else format(value, layout))


def _accepted(accepted: bool | None) -> Text:
    return Text() if accepted is None else Text("yes", "green") if accepted else Text("no", "red")


def _note(row: Row, keep: float | None) -> Text:
    """Why there is no quality, what makes the face poor, and why it was rejected."""
    from facerts.scoring.reasons import in_words

    if row.error is not None:
        return text_cell(row.error.removeprefix(f"{row.path}: "), "red")
    if row.face is None and row.smaller_faces:
        return text_cell(f"no face of this size, {row.smaller_faces:,} smaller")
    return text_cell(in_words(row.reasons, keep))
