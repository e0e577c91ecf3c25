"""What reads each kind of file, as users' commands do: the whole of it, with all that is asked of what was read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

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


def _table(path: Path) -> None:
    from facerts.embedder import load_table

    load_table(path)


def _result(folder: Path) -> None:
    from facerts.evaluate.compare import compare
    from facerts.report import write_report

    with TemporaryDirectory() as out:
        write_report([folder], Path(out) / "page.html")
    compare([f"one={folder}", f"other={folder}"])


def _log(path: Path) -> None:
    from facerts.report import write_report

    with TemporaryDirectory() as out:
        write_report([path.parent], Path(out) / "page.html")


# By the name of the kind; each raises the project's own errors and nothing else, whatever the file holds.
READERS: dict[str, Callable[[Path], None]] = {
    "source": _source,
    "table": _table,
    "result": _result,
    "log": _log,
}
