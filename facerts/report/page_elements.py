"""What a page is made of; the template lays it out, and ``markdown`` writes it as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from facerts.report.crops import Shown
from facerts.report.table import Table


class Figure(NamedTuple):
    """An SVG element with its caption; a figure with a name is also written as a file of this name."""

    svg: str
    caption: str
    name: str = ""


@dataclass(frozen=True)
class Wall:
    """Images under headings, opened by a click on its title."""

    title: str
    images: Mapping[str, Sequence[Shown]]
    open: bool = False

    @property
    def count(self) -> int:
        """Number of images."""
        return sum(len(entry.images) for shown in self.images.values() for entry in shown)


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
