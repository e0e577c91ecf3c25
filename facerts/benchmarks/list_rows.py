"""The rows of a list of pairs, in any of the layouts that such lists have."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from facerts.errors import DataError
from facerts.io.files import regular

LABELS = {
    **dict.fromkeys(("1", "true", "same", "yes", "genuine", "match"), True),
    **dict.fromkeys(("0", "-1", "false", "different", "no", "impostor", "mismatch"), False),
}
# None: any white space. Of those that fit, the first is meant.
_DELIMITERS = ("\t", ",", ";", None)
_LFW = ()
_LAYOUTS: tuple[tuple[str, ...], ...] = (("first", "second", "same"), ("same", "first", "second"), _LFW)
_UNLABELED = ("first", "second")
_WORDS = {
    **dict.fromkeys(("first", "second"), "PATH"),
    **dict.fromkeys(("first_subject", "second_subject"), "NAME"),
    "same": "LABEL",
    "fold": "FOLD",
}
_IMAGE, _PERSON = "(image|img|path|file|photo|face)(path|file|name)?", "(subject|person|identity|id)"
# What a column is for, by its name in small letters and digits alone.
_COLUMNS = {
    "first": re.compile(f"first{_IMAGE}|first|{_IMAGE}(1|a|first)(path|file|name)?"),
    "second": re.compile(f"second{_IMAGE}|second|{_IMAGE}(2|b|second)(path|file|name)?"),
    "same": re.compile("(is)?(same|match|genuine)(person|identity)?|(pair)?labels?|target"),
    "fold": re.compile("fold(id|number)?"),
    "first_subject": re.compile(f"first{_PERSON}|{_PERSON}(1|a)"),
    "second_subject": re.compile(f"second{_PERSON}|{_PERSON}(2|b)"),
}
_NUMBER = re.compile("[0-9]{1,9}")
_HEADER = "a line of column names such as first,second,same"


@dataclass(frozen=True, slots=True)
class ListedPair:
    """A row of a list: two paths and what the list knows of them.

    Attributes:
        line: its number in the list.
        same: whether the images are of one person; None if the list has no labels.
        label: how the list says so.
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
    try:
        with open(path, encoding="utf-8-sig", opener=regular) as file:
            for number, line in enumerate(file, 1):
                if line := line.strip():
                    yield number, line
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text; save the list as UTF-8") from error


def read_rows(path: Path, *, labeled: bool) -> tuple[list[ListedPair], list[str]]:
    """The rows of a list of pairs, and the names of the columns that are not used.

    A row that does not fit what was read above it has an error, which says so. ``labeled`` lists must say whether each
    pair is of one person.

    Raises:
        DataError: the list cannot be read, is in no known layout or in more than one, or has fewer lines than its
            first line announces.
    """
    lines = list(numbered_lines(path))
    layout = _layout_of(path, lines, labeled=labeled)
    lines = lines[layout.skipped :]
    if not lines:
        raise DataError(f"{path}: the list has no pairs")
    rows: list[ListedPair] = []
    read: list[int] = []
    labels: dict[str, None] = {}
    for number, line in lines:
        row = layout.row(number, line)
        if row.error is None and {"0", "-1"} <= {*labels, row.label}:
            row = replace(row, error=f"has label {row.label!r}; write either 0 or -1 for different people")
        if row.error is None:
            read.append(number)
            labels.setdefault(row.label)
        else:
            row = replace(
                row, error=f"{path}, line {number}: {_understood(layout, read, labels)}; this one {row.error}"
            )
        rows.append(row)
    return _in_announced_folds(path, rows, layout.announced), layout.unused


def _understood(layout: _Layout, read: list[int], labels: Iterable[str]) -> str:
    """What is known of a list when a line does not fit: how the lines above were read, if there are any."""
    if not read:
        return f"the list reads as {layout}" + ("" if layout.skipped else f", without {_HEADER}")
    lines = f"lines {read[0]} to {read[-1]} read" if len(read) > 1 else f"line {read[0]} reads"
    known = [label for label in labels if label]
    return f"{lines} as {layout}" + f" with label{'s' * (len(known) > 1)} {' and '.join(known)}" * bool(known)


@dataclass(frozen=True)
class _Layout:
    """How the lines of a list are read.

    Attributes:
        columns: what each column is for; none for LFW's lines.
        skipped: number of lines before the first pair.
        announced: of LFW's first line, the number of folds, if it says so, and of pairs per fold and class.
    """

    delimiter: str | None
    columns: tuple[str, ...]
    skipped: int = 0
    announced: tuple[int, ...] = ()

    def __str__(self) -> str:
        return " ".join(_WORDS.get(column, "-") for column in self.columns) or "NAME N M or NAME N NAME M"

    @property
    def unused(self) -> list[str]:
        return [column for column in self.columns if column and column not in _WORDS]

    def row(self, number: int, line: str) -> ListedPair:
        """The pair in a line; its error is what keeps the line from being one."""
        cells = _split(line, self.delimiter)
        return self._columns_row(number, cells) if self.columns else _lfw_row(number, cells)

    def _columns_row(self, number: int, cells: list[str]) -> ListedPair:
        found = dict(zip(self.columns, cells, strict=False))
        if len(cells) > len(self.columns) or ("same" in self.columns and "same" not in found):
            return ListedPair(number, error=f"{_count(cells)}, not {len(self.columns)}")
        first, second, label = (found.get(name, "") for name in ("first", "second", "same"))
        if not (first and second):
            return ListedPair(number, error="lacks a path")
        same, label = LABELS.get(label.lower()), label[:100]
        people, fold = (
            (found.get("first_subject", ""), found.get("second_subject", "")),
            found.get("fold", ""),
        )
        error = None
        if "same" in self.columns and same is None:
            error = f"has label {label!r}; write 1 or 0"
        elif "fold" in self.columns and not _NUMBER.fullmatch(fold):
            error = f"has fold {fold[:100]!r}; write a whole number"
        elif all(people) and same is not None and same != (people[0] == people[1]):
            error = f"has label {label!r}, which contradicts the people's names; fix one of them"
        return ListedPair(
            number,
            first,
            second,
            None if error else same,
            label.lower(),
            int(fold) if error is None and fold else None,
            people if all(people) else None,
            error,
        )


def _layout_of(path: Path, lines: Sequence[tuple[int, str]], *, labeled: bool) -> _Layout:
    """The layout of a list: what its first line says, or else the only one that the lines fit, from top to bottom."""
    where, head = (f"{path}, line {lines[0][0]}", lines[0][1]) if lines else (str(path), "")
    for delimiter in _DELIMITERS:
        names = _split(head, delimiter)
        columns = tuple(map(_column, names))
        if {"first", "second"} <= {*columns}:
            for name, column in zip(names, columns, strict=True):
                if columns.count(column) > 1 and column in _WORDS:
                    raise DataError(
                        f"{where}: column {name[:100]!r} is not the only {column}; rename one of them"
                    )
            if labeled and "same" not in columns:
                raise DataError(
                    f"{where}: no column of {head[:100]!r} says whether a pair is of one person; name it same"
                )
            return _Layout(delimiter, columns, skipped=1)
    known = _LAYOUTS if labeled else (_UNLABELED, *_LAYOUTS)
    layouts = [_Layout(delimiter, columns) for delimiter in _DELIMITERS for columns in known]
    if len(numbers := head.split()) < 3 and all(map(_NUMBER.fullmatch, numbers)):
        announced = tuple(map(int, numbers))
        layouts = [_Layout(delimiter, _LFW, 1, announced) for delimiter in _DELIMITERS]
        lines = lines[1:]
    left: list[_Layout] = []
    for number, line in lines:
        fitting = [layout for layout in left or layouts if layout.row(number, line).error is None]
        left = [layout for layout in fitting if layout.delimiter == fitting[0].delimiter] or left
        if len(left) == 1:
            break
    kinds = list(dict.fromkeys(map(str, left or layouts)))
    if lines and not left:
        raise DataError(
            f"{where}: {head[:100]!r} is neither {', '.join(kinds)} nor {_HEADER}; separate columns by "
            "tabs, commas, semicolons or spaces, and label pairs with 1 or 0"
        )
    if len(left) > 1:
        raise DataError(f"{path}: its lines read as {' and as '.join(kinds)}; begin it with {_HEADER}")
    return (left or layouts)[0]


def _split(line: str, delimiter: str | None) -> list[str]:
    """The cells of a line; none if its quotes are broken."""
    if delimiter is None:
        return line.split()
    try:
        (cells,) = csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True)
    except csv.Error:
        return []
    return [cell.strip() for cell in cells]


def _count(cells: list[str]) -> str:
    return f"has {len(cells)} column{'s' * (len(cells) != 1)}"


def _column(name: str) -> str:
    """What a column is for, or its name."""
    plain = re.sub(r"[\W_]", "", name.lower())
    return next((column for column, names in _COLUMNS.items() if names.fullmatch(plain)), name)


def _lfw_row(number: int, cells: list[str]) -> ListedPair:
    """LFW's "NAME 1 4" is a genuine pair, "NAME 1 OTHER 2" an impostor pair; image 1 is NAME/NAME_0001.jpg."""
    if len(cells) not in (3, 4):
        return ListedPair(number, error=_count(cells))
    person, first, *others, second = cells
    other = others[0] if others else person
    for image in (first, second):
        if not _NUMBER.fullmatch(image):
            return ListedPair(number, error=f"has {image[:100]!r} in place of the number of an image")
    keys = [f"{name}/{name}_{int(image):04d}.jpg" for name, image in ((person, first), (other, second))]
    return ListedPair(number, keys[0], keys[1], same=not others, people=(person, other))


def _in_announced_folds(path: Path, rows: list[ListedPair], announced: tuple[int, ...]) -> list[ListedPair]:
    if not announced:
        return rows
    size = 2 * announced[-1]
    if not size or len(rows) % size or announced[:-1] not in ((), (len(rows) // size,)):
        raise DataError(
            f"{path}: {len(rows)} pairs, but its first line announces {' x 2 x '.join(map(str, announced))}; "
            "it is truncated"
        )
    return [replace(row, fold=index // size) for index, row in enumerate(rows)] if len(rows) > size else rows
