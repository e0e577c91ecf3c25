"""Tables of evaluations and comparisons: the terminal, the page and Markdown show the same numbers and units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from facerts.evaluation.measure import Evaluation, Measure
from facerts.evaluation.wording import MAX_DIGITS, digits_of, interval, percent, points, points_interval
from facerts.io.console import printable

_HTML_OR_LINK = re.compile(r"\\|<(?=[a-zA-Z/!?])|\](?=\()")


class Cell(NamedTuple):
    """A cell of a table: its text, what stands small beside it, and whether it is bold."""

    text: str
    small: str = ""
    bold: bool = False


NONE = Cell("–")
# A table of measures of more columns and of few rows is turned: a number a row.
WIDE, FEW = 6, 4


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        rows: a cell for each column.
        words: so many of its first columns hold words, the others numbers.
        title: above it; a folded table of the page opens by a click on it.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: int = 1
    title: str = ""
    folded: bool = False


def measure_tables(results: Sequence[tuple[str, Evaluation]]) -> list[Table]:
    """The tables of a section of several models; an empty label stands for the only one.

    A row for each model and for what the numbers are of, a column for each number that any of them has.
    """
    names = dict.fromkeys(one.table for _, section in results for one in section.measures)
    folded = {title for _, section in results for title in section.folded}
    return [
        _table(
            name,
            [(label, one) for label, section in results for one in section.measures if one.table == name],
            folded=name in folded,
        )
        for name in names
    ]


def summary_table(labels: Sequence[str], columns: Sequence[dict[str, Measure]]) -> Table:
    """A row for each number that any model has, a column for each model."""
    names = dict.fromkeys(name for cells in columns for name in cells)
    rows = [[Cell(name), *(NONE if name not in cells else cell(cells[name]) for cells in columns)] for name in names]
    return Table(["", *labels], rows)


def cell(measure: Measure) -> Cell:
    """A number with its interval in brackets, or the lowest and the highest in parentheses."""
    text, low_to_high, ends = _texts(measure)
    if measure.value is None and measure.range is not None:
        return Cell(low_to_high)
    small = f"({low_to_high})" if measure.range is not None else ends
    if measure.p_value is not None:
        small = f"{small}, p {measure.p_value:.3f}"
    if measure.mark == "worst":
        small = f"worst {small}".rstrip()
    return Cell(text, small, bool(measure.mark))


def _texts(measure: Measure) -> tuple[str, str, str]:
    """The value, "LOW to HIGH" and "[LOW, HIGH]"."""
    value, form = measure.value, measure.format
    if form in ("share", "small share"):
        digits = MAX_DIGITS if form == "small share" else digits_of(measure.ci95)
        low_to_high = interval(measure.range, digits).strip("[]").replace(",", " to")
        if value is None and measure.range is not None:
            low_to_high = " to ".join(map(percent, measure.range))
        return percent(value, digits), low_to_high, interval(measure.ci95, digits)
    if form == "points":
        ends = "" if measure.ci95 is None else points_interval(measure.ci95)
        return ("–" if value is None else points(value)), "", ends

    def written(number: float) -> str:
        spec = {"count": ",.0f", "whole share": ".0%"}.get(form, form)
        return f"{number:{spec}}".replace("-", "−")

    both = [[] if pair is None else [written(end) for end in pair] for pair in (measure.range, measure.ci95)]
    ends = f"[{', '.join(both[1])}]" if both[1] else ""
    return ("–" if value is None else written(value)), " to ".join(both[0]), ends


def _table(title: str, found: Sequence[tuple[str, Measure]], *, folded: bool) -> Table:
    keys = list(dict.fromkeys(key for _, one in found for key in one.of))
    cells: dict[tuple[str, ...], dict[str, Measure]] = {}
    for label, one in found:
        cells.setdefault((label, *(one.of.get(key, "") for key in keys)), {})[one.name] = one
    columns = _merged([list(numbers) for numbers in cells.values()])
    kept = _telling(list(cells), len(keys))
    header = [name for name, shown in zip(("model", *keys), kept, strict=True) if shown]
    rows = [
        (
            [text for text, shown in zip(row, kept, strict=True) if shown],
            [cell(numbers[name]) if name in numbers else NONE for name in columns],
        )
        for row, numbers in cells.items()
    ]
    if len(columns) > WIDE and len(rows) <= FEW:
        turned = [[Cell(name), *(numbers[at] for _, numbers in rows)] for at, name in enumerate(columns)]
        return Table(["", *(", ".join(texts) for texts, _ in rows)], turned, 1, title, folded=folded)
    shown = [[*map(Cell, texts), *numbers] for texts, numbers in rows]
    return Table([*header, *columns], shown, len(header), title, folded=folded)


def _telling(rows: Sequence[tuple[str, ...]], keys: int) -> list[bool]:
    """Which columns of words tell rows apart: those with different texts, or else all but an empty label."""
    kept = [len(set(column)) > 1 for column in zip(*rows, strict=True)]
    return kept if any(kept) else [bool(rows[0][0]), *[True] * keys]


def _merged(every: Sequence[list[str]]) -> list[str]:
    """The names of all rows, each after the name that it follows in its row."""
    merged: list[str] = []
    for names in every:
        place = 0
        for name in names:
            if name not in merged:
                merged.insert(place, name)
            place = merged.index(name) + 1
    return merged


def plain(cell: Cell) -> str:
    """A cell as one line of text."""
    small = cell.small if not cell.small or "[" in cell.small or "(" in cell.small else f"({cell.small})"
    return f"{cell.text} {small}".rstrip()


def to_markdown(table: Table) -> str:
    """A table as GitHub-flavored Markdown, with its title as a heading."""
    rows = [
        [plain(cell._replace(text=f"**{cell.text}**" if cell.bold else cell.text)) for cell in row]
        for row in table.rows
    ]
    lines = markdown_table(list(map(escaped, table.columns)), [map(escaped, row) for row in rows], words=table.words)
    return f"### {escaped(table.title)}\n\n{lines}" if table.title else lines


def escaped(text: str) -> str:
    """Text in one line of Markdown that a name cannot turn into HTML, a link or an image."""
    return _HTML_OR_LINK.sub(r"\\\g<0>", printable(text))


def markdown_table(header: Sequence[str], rows: Iterable[Iterable[str]], *, words: int = 1) -> str:
    """A GitHub-flavored table; so many of its first columns hold words, the others numbers, aligned right."""
    lines = [[cell.replace("|", "\\|") for cell in line] for line in (header, *rows)]
    lines.insert(1, [*["---"] * words, *["---:"] * (len(header) - words)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
