"""What reads each kind of file, as users' commands do: the whole of it, with all that is asked of what was read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from facerts.data.source import Source
from facerts.errors import Error


def read_source(source: Source) -> None:
    """Every name and every picture; one that cannot be read is a row of its own."""
    for index in range(len(source)):
        source.location(index)
        try:
            source.read(index)
        except Error:
            continue


def _source(path: Path) -> None:
    from facerts.data import open_pictures

    read_source(open_pictures(path))


# By the name of the kind; each raises the project's own errors and nothing else, whatever the file holds.
READERS: dict[str, Callable[[Path], None]] = {"source": _source}
