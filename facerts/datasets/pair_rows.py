"""The rows of a list of pairs, in any of the layouts that such lists have."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from facerts.errors import DataError
from facerts.io.csv_file import text_lines

LABELS = {
    **dict.fromkeys(("1", "true", "same", "yes", "genuine", "match"), True),
    **dict.fromkeys(("0", "-1", "false", "different", "no", "impostor", "mismatch"), False),
}
# None: any white space. Of those that fit, the first is meant.
_DELIMITERS = ("\t", ",", ";", None)
# LFW's lines have no columns. Only lists without labels have the first.
_LAYOUTS = (("first", "second"), ("first", "second", "same"), ("same", "first", "second"), ())
_WORDS = {
    "first": "PATH",
    "second": "PATH",
    "same": "LABEL",
    "fold": "FOLD",
    "first_person": "NAME",
    "second_person": "NAME",
}
_IMAGE, _PERSON = "(image|img|path|file|photo|face)(path|file|name)?", "(subject|person|identity|id)"
# What a column is for, by its name in small letters and digits alone.
_COLUMNS = {
    "first": re.compile(f"first{_IMAGE}|first|{_IMAGE}(1|a|first)(path|file|name)?"),
    "second": re.compile(f"second{_IMAGE}|second|{_IMAGE}(2|b|second)(path|file|name)?"),
    "same": re.compile("(is)?(same|match|genuine)(person|identity)?|(pair)?labels?|target"),
    "fold": re.compile("fold(id|number)?"),
    "first_person": re.compile(f"first{_PERSON}|{_PERSON}(1|a)"),
    "second_person": re.compile(f"second{_PERSON}|{_PERSON}(2|b)"),
}
_NUMBER = re.compile("[0-9]{1,9}")
_HEADER = "a line of column names such as first,second,same"
# Columns that an error shows of a wide table.
MAX_SHOWN = 12


@dataclass(frozen=True, slots=True)
class ListedPair:
    """A row of a list: two paths and what the list knows of them.

    Attributes:
        same: whether the images are of one person, which ``label`` says; None if the list has no labels.
        people: who they are, if known.
        error: why the row is not a pair; its paths may be known.
    """

    line: int
    first: str = ""
    second: str = ""
    same: bool | None = None
    label: str = ""
    fold: int | None = None
    people: tuple[str, str] | None = None
    error: str | None = None


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The non-blank lines of a text file, stripped, with their numbers from 1."""
    return ((number, line) for number, text in enumerate(text_lines(path), 1) if (line := text.strip()))


def read_rows(path: Path, *, labeled: bool) -> tuple[list[ListedPair], list[str]]:
    """The rows of a list of pairs, and the names of the columns that are not used.

    A row that does not fit what was read above it has an error, which says so. ``labeled`` lists must say whether each
    pair is of one person.
    """
    layout, lines = _layout_of(path, labeled=labeled)
    rows: list[ListedPair] = []
    read: list[int] = []
    labels: dict[str, None] = {}
    for number, line in lines:
        row = layout.row(number, line)
        if row.error is None and {"0", "-1"} <= {*labels, row.label}:
            row = replace(row, error=f"has label {row.label!r}; write either 0 or -1 for different people")
        if row.error is None:
            read.append(number)
            labels[row.label] = None
        else:
            above = f"lines {read[0]} to {read[-1]} read" if read else "the list reads"
            known = f" with labels {' and '.join(labels)}" if any(labels) else ""
            header = f", without {_HEADER}" if number == 1 else ""
            understood = f"{path}, line {number}: {above} as {layout}{known}{header}"
            row = replace(row, error=f"{understood}; this one {row.error}")
        rows.append(replace(row, fold=len(rows) // layout.fold_size) if layout.fold_size else row)
    return rows, [column for column in layout.columns if column and column not in _WORDS]


@dataclass(frozen=True)
class _Layout:
    """How the lines of a list are read: what each column is for, and the size of the folds of LFW's first line."""

    delimiter: str | None
    columns: tuple[str, ...]
    fold_size: int = 0

    def __str__(self) -> str:
        shown = [_WORDS.get(column, "-") for column in self.columns[:MAX_SHOWN]]
        shown += ["…"] * (len(self.columns) > MAX_SHOWN)
        return " ".join(shown) or "NAME N M or NAME N NAME M"

    @cached_property
    def known(self) -> set[str]:
        """Its columns, so that a wide table is not searched at each row."""
        return set(self.columns)

    def row(self, number: int, line: str) -> ListedPair:
        """The pair in a line; its error is what keeps the line from being one."""
        cells = _split(line, self.delimiter)
        if not cells:
            return ListedPair(number, error="has a quote without an end, or is too long")
        if not self.columns:
            return _lfw_row(number, cells)
        found = dict(zip(self.columns, cells, strict=False))
        if len(cells) > len(self.columns) or ("same" in self.known and "same" not in found):
            return ListedPair(number, error=f"does not have {len(self.columns)} columns, but {len(cells)}")
        first, second, label, fold, *people = (found.get(column, "") for column in _WORDS)
        same, error = LABELS.get(label.lower()), None
        if not (first and second):
            error = "lacks a path"
        elif "same" in self.known and same is None:
            error = f"has label {label[:100]!r}; write 1 or 0"
        elif "fold" in self.known and not _NUMBER.fullmatch(fold):
            error = f"has fold {fold[:100]!r}; write a whole number"
        elif all(people) and same is not None and same != (people[0] == people[1]):
            error = f"has label {label!r}, which contradicts the people's names; fix one of them"
        if error:
            return ListedPair(number, first, second, error=error)
        names = (people[0], people[1]) if all(people) else None
        return ListedPair(number, first, second, same, label.lower(), int(fold) if fold else None, names)


def _layout_of(path: Path, *, labeled: bool) -> tuple[_Layout, list[tuple[int, str]]]:
    """The layout of a list, and the lines of its pairs.

    The first line tells, if it names columns or has LFW's numbers; otherwise the lines, from top to bottom, leave one.
    """
    lines = list(numbered_lines(path))
    where, head = (f"{path}, line {lines[0][0]}", lines[0][1]) if lines else (str(path), "")
    layouts = [_Layout(delimiter, columns) for delimiter in _DELIMITERS for columns in _LAYOUTS[labeled:]]
    left: list[_Layout] = []
    for delimiter in _DELIMITERS:
        columns = tuple(map(_column, _split(head, delimiter)))
        if not left and {"first", "second"} <= {*columns}:
            for column in _WORDS:
                count = columns.count(column)
                if count > 1 or (column == "same" and labeled and not count):
                    raise DataError(f"{where}: one column must be {column}, but {count} of {head[:100]!r} are")
            left, lines = [_Layout(delimiter, columns)], lines[1:]
    if lines and not left and all(map(_NUMBER.fullmatch, numbers := head.split())) and len(numbers) < 3:
        *folds, size, count = *map(int, numbers), len(lines) - 1
        if not size or count % (2 * size) or folds not in ([], [count // (2 * size)]):
            raise DataError(f"{path}: {count} pairs, but its first line announces {head}; it is truncated")
        size = 0 if count == 2 * size else 2 * size
        layouts, lines = [_Layout(delimiter, (), size) for delimiter in _DELIMITERS], lines[1:]
    if not lines:
        raise DataError(f"{path}: the list has no pairs")
    for number, line in lines:
        if len(left) == 1:
            break
        fitting = [layout for layout in left or layouts if layout.row(number, line).error is None]
        left = [layout for layout in fitting if layout.delimiter == fitting[0].delimiter] or left
    kinds = list(dict.fromkeys(map(str, left or layouts)))
    if not left:
        raise DataError(
            f"{where}: {head[:100]!r} is neither {', '.join(kinds)} nor {_HEADER}; separate columns by "
            "tabs, commas, semicolons or spaces, and label pairs with 1 or 0"
        )
    if len(left) > 1:
        raise DataError(f"{path}: its lines read as {' and as '.join(kinds)}; begin it with {_HEADER}")
    return left[0], lines


def _split(line: str, delimiter: str | None) -> list[str]:
    """The cells of a line; none if its quotes are broken."""
    if delimiter is None:
        return line.split()
    try:
        (cells,) = csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True)
    except csv.Error:
        return []
    return [cell.strip() for cell in cells]


def _column(name: str) -> str:
    """What a column is for, or its name."""
    plain = re.sub(r"[\W_]", "", name.lower())
    return next((column for column, names in _COLUMNS.items() if names.fullmatch(plain)), name)


def _lfw_row(number: int, cells: list[str]) -> ListedPair:
    """LFW's "NAME 1 4" is a genuine pair, "NAME 1 OTHER 2" an impostor pair; image 1 is NAME/NAME_0001.jpg."""
    if len(cells) not in (3, 4):
        return ListedPair(number, error=f"does not have 3 or 4 columns, but {len(cells)}")
    person, first, *others, second = cells
    other = others[0] if others else person
    for image in (first, second):
        if not _NUMBER.fullmatch(image):
            return ListedPair(number, error=f"has {image[:100]!r} in place of the number of an image")
    keys = [f"{name}/{name}_{int(image):04d}.jpg" for name, image in ((person, first), (other, second))]
    return ListedPair(number, keys[0], keys[1], same=not others, people=(person, other))
