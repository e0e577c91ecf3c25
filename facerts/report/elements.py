"""What a page is made of; the template lays it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from facerts.report.crops import Shown, ShownPair
from facerts.report.numbers import interval, percent


class Cell(NamedTuple):
    """A cell of a table: its text, what stands small under it, and whether it is bold."""

    text: str
    small: str = ""
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: headings.
        rows: a cell for each column.
        words: so many of its first columns hold words, the others numbers.
        title: above it; a folded table opens by a click on it.
        note: under it.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: int = 1
    title: str = ""
    note: str = ""
    folded: bool = False


class Figure(NamedTuple):
    """An SVG element with its caption."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Wall:
    """Images under headings, opened by a click on its title.

    Attributes:
        people: whether the images are of people.
    """

    title: str
    images: Mapping[str, Sequence[Shown | ShownPair]]
    people: bool = True
    open: bool = False

    @property
    def count(self) -> int:
        """Number of images."""
        return sum(len(one.images) for shown in self.images.values() for one in shown)


@dataclass(frozen=True)
class PagePart:
    """Tables, figures, text, warnings, further figures under a title, images, facts and commands, in this order."""

    title: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    text: str = ""
    notes: Sequence[str] = ()
    more: tuple[str, Sequence[Figure]] = ("", ())
    walls: Sequence[Wall] = ()
    facts: Sequence[tuple[str, str]] = ()
    commands: Sequence[str] = ()


@dataclass(frozen=True)
class PageSection:
    """A section: the target of the menu's entry, the entry, and the heading; nothing without parts."""

    id: str
    entry: str
    title: str
    parts: Sequence[PagePart]


def words(*texts: str) -> list[Cell]:
    """Cells of plain text."""
    return [Cell(text) for text in texts]


def share(value: float | None, ends: Sequence[float] | None = None, *, bold: bool = False) -> Cell:
    """A cell with a share in percent and its interval."""
    return Cell(percent(value), interval(ends), bold)
