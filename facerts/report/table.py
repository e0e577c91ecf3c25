"""One table for all views: the terminal, the page and Markdown show the same columns, numbers and units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from facerts.evaluation.wording import digits_of, interval, percent
from facerts.io.console import printable

_HTML_OR_LINK = re.compile(r"\\|<(?=[a-zA-Z/!?])|\](?=\()")


class Cell(NamedTuple):
    """A cell of a table: its text, what stands small beside it, and whether it is bold."""

    text: str
    small: str = ""
    bold: bool = False


NONE = Cell("–")


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        rows: a cell for each column.
        words: so many of its first columns hold words, the others numbers.
        title: above it; a folded table of the page opens by a click on it.
        note: under it.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: int = 1
    title: str = ""
    note: str = ""
    folded: bool = False


def words(*texts: str) -> list[Cell]:
    """Cells of plain text."""
    return [Cell(text) for text in texts]


def share(value: float | None, ends: Sequence[float] | None = None) -> Cell:
    """A cell with a share in percent and its interval."""
    digits = digits_of(ends)
    return Cell(percent(value, digits), interval(ends, digits))


def plain(cell: Cell) -> str:
    """A cell as one line of text."""
    small = cell.small if not cell.small or "[" in cell.small or "(" in cell.small else f"({cell.small})"
    return f"{cell.text} {small}".rstrip()


def to_markdown(table: Table) -> str:
    """A table as GitHub-flavored Markdown, with its title as a heading and its note under it."""
    rows = [
        [plain(cell._replace(text=f"**{cell.text}**" if cell.bold else cell.text)) for cell in row]
        for row in table.rows
    ]
    lines = markdown_table(list(map(escaped, table.columns)), [map(escaped, row) for row in rows], words=table.words)
    title, note = escaped(table.title), escaped(table.note)
    return "\n\n".join(filter(None, [f"### {title}" * bool(title), lines, note]))


def escaped(text: str) -> str:
    """Text in one line of Markdown that a name cannot turn into HTML, a link or an image."""
    return _HTML_OR_LINK.sub(r"\\\g<0>", printable(text))


def markdown_table(
    header: Sequence[str], rows: Iterable[Iterable[str]], caption: str | None = None, *, words: int = 1
) -> str:
    """A GitHub-flavored table; so many of its first columns hold words, the others numbers, aligned right."""
    lines = [[cell.replace("|", "\\|") for cell in line] for line in (header, *rows)]
    lines.insert(1, [*["---"] * words, *["---:"] * (len(header) - words)])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return table if caption is None else f"{caption}\n\n{table}"
