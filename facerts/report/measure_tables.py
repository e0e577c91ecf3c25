"""The tables of evaluations and comparisons: one way for the terminal, the page and Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from facerts.evaluation.measure import Evaluation, Measure
from facerts.evaluation.wording import MAX_DIGITS, digits_of, interval, percent, points, points_interval
from facerts.report.table import NONE, Cell, Table, words

# A table of more columns and of few rows is turned: a number a row.
WIDE, FEW = 6, 4


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
    shown = [[*words(*texts), *numbers] for texts, numbers in rows]
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
