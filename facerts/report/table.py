"""One table for all views: the terminal, the page and Markdown show the same columns, numbers and units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from facerts.io.console import printable

_HTML_OR_LINK = re.compile(r"\\|<(?=[a-zA-Z/!?])|\](?=\()")
DIGITS = 2
MAX_DIGITS = 4


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

    def without_empty_words(self) -> Table:
        """The same without columns of words that say nothing, such as the model where there is but one."""
        kept = [
            number
            for number in range(len(self.columns))
            if number >= self.words or any(row[number].text for row in self.rows)
        ]
        return replace(
            self,
            columns=[self.columns[number] for number in kept],
            rows=[[row[number] for number in kept] for row in self.rows],
            words=sum(number < self.words for number in kept),
        )


def words(*texts: str) -> list[Cell]:
    """Cells of plain text."""
    return [Cell(text) for text in texts]


def count(number: int) -> Cell:
    """A cell with a number of things."""
    return Cell(f"{number:,}")


def share(value: float | None, ends: Sequence[float] | None = None) -> Cell:
    """A cell with a share in percent and its interval."""
    digits = digits_of(ends)
    return Cell(percent(value, digits), interval(ends, digits))


def by_number(labels: Sequence[str], columns: Sequence[dict[str, Cell]]) -> Table:
    """A row for each number that any column has, a column for each label."""
    names = dict.fromkeys(name for cells in columns for name in cells)
    return Table(
        ["", *labels], [[Cell(name), *(cells.get(name, NONE) for cells in columns)] for name in names]
    )


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
    lines = markdown_table(
        list(map(escaped, table.columns)), [map(escaped, row) for row in rows], words=table.words
    )
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


def percent(share: float | None, digits: int = DIGITS) -> str:
    """A share as "97.98%"; a dash for none."""
    return "–" if share is None else f"{_percent(share, digits)}%"


def digits_of(ends: Sequence[float] | None, most: int = DIGITS) -> int:
    """The digits of a percentage that its interval leaves a meaning: none where it is 10 points wide, one at 2."""
    width = 0.0 if ends is None else ends[1] - ends[0]
    return min(most, 0 if width >= 0.1 else 1 if width >= 0.02 else most)


def interval(ends: Sequence[float] | None, digits: int = DIGITS) -> str:
    """An interval of a share as "[97.43, 98.45]", in percent; empty for none."""
    return "" if ends is None else f"[{', '.join(_percent(end, digits) for end in ends)}]"


def measured(value: float | None, ends: Sequence[float] | None, digits: int) -> str:
    """A share with its interval as text."""
    return f"{percent(value, digits)} {interval(ends, digits)}".rstrip()


def rate(share: str | float) -> str:
    """A rate that was asked for, as "0.1%"."""
    return f"{100 * float(share):g}%"


def points(difference: float, digits: int = DIGITS) -> str:
    """A difference of shares as "−1.20", in percentage points."""
    return f"{100 * difference:+.{digits}f}".replace("-", "−")


def points_interval(ends: Sequence[float]) -> str:
    """An interval of a difference of shares, in percentage points."""
    return f"[{', '.join(map(points, ends))}]"


def complement(ends: Sequence[float] | None) -> tuple[float, float] | None:
    """The interval of 1 − x, from that of x."""
    return None if ends is None else (1 - ends[1], 1 - ends[0])


def _percent(share: float, digits: int) -> str:
    """With further digits where a share would otherwise look like nothing or everything."""
    text = f"{100 * share:.{digits}f}"
    while 0 < share < 1 and float(text) in (0, 100) and digits < MAX_DIGITS:
        digits += 1
        text = f"{100 * share:.{digits}f}"
    return text
