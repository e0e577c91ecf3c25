"""Output of commands: results on standard output, everything else on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, is_dataclass
from enum import Enum
from functools import partial
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from facerts.errors import Error
from facerts.io.console import printable, say, stderr
from facerts.io.console import warn as warn
from facerts.io.json_file import json_text

if TYPE_CHECKING:
    from facerts.report.table import Table as ResultTable

# The name of a field of the rows, or a title and a field or what to show of a row.
Column: TypeAlias = "str | tuple[str, str | Callable[[Any], object]]"

# Documented in docs/command-line.md.
EXIT_SOME_FAILED = 1
EXIT_DIFFERENT = 1
EXIT_UNUSABLE = 2
EXIT_NON_FINITE = 3
EXIT_UNEXPECTED = 4
EXIT_INCONCLUSIVE = 5
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
# The first few of a million errors show what is wrong; the rows have them all.
SHOWN_ERRORS = 10
# What --out is given for standard output.
STDOUT = Path("-")
# Rows of a table: what fits on a few screens.
MAX_ROWS = 50
# Columns of a terminal below which percentiles must do.
NARROW = 80


class _Output(Console):
    """Standard output; a broken pipe is handled where the command ends."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


# Tables have a fixed width in files and pipes, and fit the terminal otherwise.
stdout = _Output(width=None if sys.stdout.isatty() else 160)


def check_given(paths: Iterable[str]) -> None:
    """Refuse a path that is not there; patterns, addresses, devices and standard input have errors of their own."""
    for path in paths:
        if not (os.path.lexists(path) or glob(path) or set(path) & set("*:") or path == "-"):
            raise Error(f"{path}: no such file or folder")


def check_new(out: Path | str | None, *, overwrite: bool, resume: bool | None, folder: bool) -> None:
    """Refuse a file or folder that is there already; ``resume`` is None where a command cannot continue."""
    if out is None or "://" in str(out):
        return
    path = Path(out)
    if path.is_dir() and not folder:
        raise Error(f"{path} is a folder; give a file to write")
    if not (overwrite or resume) and (path.is_file() or (path.is_dir() and any(path.iterdir()))):
        more = "" if resume is None else ", --resume continues it"
        raise Error(f"{path} is there already: --overwrite replaces it{more}, or choose another --out")


def print_json(result: Any) -> None:
    """Print a result as one JSON document."""
    print(json_text(result, indent=1))


def print_sentence(text: object) -> None:
    """Print a sentence of a result."""
    stdout.print(text_cell(text), soft_wrap=True)


class RawOutput:
    """Standard output for what other programs read, such as CSV: unchanged, except on a terminal, as in ``ls``."""

    def __init__(self) -> None:
        # Chosen now, as a progress bar redirects standard output.
        self._file = sys.stdout

    def write(self, text: str) -> int:
        return self._file.write(printable(text, keep="\n") if self._file.isatty() else text)


def print_raw(text: object) -> None:
    """Print one line that other programs read, such as a path."""
    RawOutput().write(f"{text}\n")


def print_error(text: object) -> None:
    """Print why the command failed."""
    say(text, before="error: ", style="red")


def warn_first(problems: Sequence[object], all_in: str) -> None:
    """Print the first of many problems, and what has all of them."""
    for problem in problems[:SHOWN_ERRORS]:
        warn(problem)
    if len(problems) > SHOWN_ERRORS:
        warn(f"and {len(problems) - SHOWN_ERRORS:,} more; {all_in} them all")


def print_result(
    summary: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
    json: bool,
    rows: Iterable[Any] = (),
    columns: Sequence[Column] = (),
    *,
    name: str = "",
    out: Path | None = None,
    kind: type[Any] | None = None,
    all_in: str = "",
    most: int = MAX_ROWS,
    first: Callable[[Any], Any] | None = None,
    details: Mapping[str, Any] | None = None,
    problems: Sequence[object] = (),
) -> None:
    """Print rows as a table and a summary below, or all as JSON; exit with status 1 if anything failed.

    Errors of rows that the table does not show go to standard error.

    Args:
        summary: names and values; a function is called when all rows have been read.
        rows: dataclasses, dictionaries or tuples, read once; one with an ``error`` has failed.
        columns: see ``print_rows``; without any, or with ``out``, no table is printed.
        name: of the rows in JSON, which otherwise has only the summary.
        out: file to write all rows to, which are of the type ``kind``. On standard output, where they are CSV or JSON
            lines, nothing else is printed.
        all_in: what else has all rows and problems.
        most: rows in the table.
        first: what to sort the table by; files and JSON keep the order of ``rows``.
        details: what only JSON has, or has in another form.
        problems: what else failed.
    """
    all_in = all_in or ("--out FILE writes" if kind else "--json prints")
    console: Console = stdout
    values: dict[str, object] = {}
    if out is not None and kind is not None:
        rows = _written(rows, out, kind, json)
        # The file has the rows that a table would show.
        columns = ()
        if out == STDOUT:
            console, json = stderr, False
        else:
            all_in, values = f"{out} has", {"file": str(out)}
    if first is not None and not json:
        rows = sorted(rows, key=first)
    limit = (sys.maxsize * bool(name)) if json else most * bool(columns)
    shown: list[Any] = []
    hidden = failed = unseen = 0
    for row in rows:
        if len(shown) < limit:
            shown.append(row)
        else:
            hidden += 1
        if getattr(row, "error", None) is not None:
            failed += 1
            unseen += json or hidden > 0
            if 0 < unseen <= SHOWN_ERRORS:
                warn(row.error)
    if unseen > SHOWN_ERRORS:
        warn(f"and {unseen - SHOWN_ERRORS:,} more errors; {all_in} them all")
    values = {**(summary() if callable(summary) else summary), **values}
    if json:
        listed = {name: [asdict(row) if is_dataclass(row) else row for row in shown]} if name else {}  # type: ignore[arg-type]
        print_json({**values, **(details or {}), **listed})
    else:
        print_rows(shown, columns)
        if columns and hidden:
            warn(f"{hidden:,} more rows are not shown; {all_in} them all")
        fields_table(values, console)
    warn_first(problems, all_in)
    if failed or problems:
        raise typer.Exit(EXIT_SOME_FAILED)


def print_rows(rows: Sequence[Any], columns: Sequence[Column] | None = None, title: str = "") -> None:
    """Print rows as a table; columns that no row fills are left out.

    Args:
        columns: the name of a field, or a title and what to show of a row; by default the keys of dictionaries.
    """
    filled = []
    for column in (columns or rows[0]) if rows else ():
        head, of = (column, column) if isinstance(column, str) else column
        cells = [cell(_field(row, of) if isinstance(of, str) else of(row)) for row in rows]
        if any(map(len, cells)):
            filled.append((head, cells))
    if stdout.width < NARROW and any(head == "percentile" for head, _ in filled):
        filled = [(head, cells) for head, cells in filled if head != "quality"]
    if not filled:
        return
    table = Table(title=text_cell(title, "table.title"), title_justify="left", box=SIMPLE_HEAD)
    table.collapse_padding, table.pad_edge = True, False
    for head, cells in filled:
        numbers = all(value.justify == "right" for value in cells if value)
        whole = all(value.no_wrap for value in cells if value)
        table.add_column(
            text_cell(head.replace("_", " ")),
            justify="right" if numbers else "left",
            no_wrap=whole,
            overflow="fold",
        )
    for line in zip(*(cells for _, cells in filled), strict=True):
        table.add_row(*line)
    stdout.print(table)


def cell(value: object) -> Text:
    """A value as people read it, nothing for None; text from outside is no markup."""
    if isinstance(value, Text):
        return value
    if isinstance(value, bool):
        return Text("yes", "green") if value else Text("no", "red")
    if isinstance(value, int | float):
        return number(f"{value:,}" if isinstance(value, int) else f"{value:.4f}")
    return text_cell("" if value is None else value.value if isinstance(value, Enum) else value)


def number(text: str) -> Text:
    """A cell with a number, or several, in a form of its own."""
    return Text(printable(text), justify="right", no_wrap=" " not in text)


def note(row: Any, keep: float | None = None) -> Text:
    """A cell with why a row has no quality, or else what makes its face poor and why it was rejected.

    Args:
        keep: the share of the calibration faces that the threshold keeps, if there is one.
    """
    from facerts.scoring.reasons import in_words

    if row.error is not None:
        return text_cell(row.error.removeprefix(f"{row.path}: "), "red")
    if getattr(row, "smaller_faces", None) and row.face is None:
        return text_cell(f"no face of this size, {row.smaller_faces:,} smaller")
    words = in_words(row.reasons, keep, getattr(row, "pose", None))
    turned = f"photo turned {row.rotation}°" if getattr(row, "rotation", None) else ""
    return text_cell("; ".join(filter(None, (turned, words))))


def text_cell(text: object, style: str = "") -> Text:
    """Text from outside as a cell of a table; brackets in it are not markup."""
    return Text(printable(text), style)


def fields_table(fields: Mapping[str, Any], console: Console | None = None) -> None:
    """Print names and values, one row each, on standard output or another console."""
    table = Table(show_header=False, box=None)
    for name, value in fields.items():
        table.add_row(text_cell(name.replace("_", " ")), text_cell(_text(value)))
    if fields:
        (console or stdout).print(table)


def print_table(table: ResultTable, title: str | None = None) -> None:
    """Print a table of a result, as the page shows it, under its own title or another; first words, then numbers."""
    from facerts.report.table import plain

    def shown(row: Sequence[Any], at: int) -> str | Text:
        return plain(row[at]) if at < table.words else number(plain(row[at]))

    columns: list[Column] = [(head, partial(shown, at=at)) for at, head in enumerate(table.columns)]
    print_rows(table.rows, columns, title or table.title)


def _written(rows: Iterable[Any], out: Path, kind: type[Any], json: bool) -> Iterator[Any]:
    from facerts.scoring.sinks import open_sink, put_csv, put_json_lines

    with ExitStack() as files:
        if out != STDOUT:
            put = files.enter_context(open_sink(out, kind))
        else:
            put = put_json_lines(RawOutput()) if json else put_csv(RawOutput(), kind)
        for row in rows:
            put(row)
            yield row


def _field(row: Any, name: str) -> Any:
    """A field of a row; some have a form of their own."""
    value: Any = row.get(name) if isinstance(row, Mapping) else getattr(row, name)
    if name == "reasons":
        from facerts.scoring.reasons import in_words

        return in_words(value)
    if name == "verdict" and value is not None:
        return Text(value, "green" if value in ("good", "usable") else "red")
    if name == "quality" and isinstance(value, float):
        return number(f"{value:.3f}")
    # Rounded down, so that what is below a threshold does not look as if it reached it.
    return int(value) if name == "percentile" and value is not None else value


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(entry)}" for name, entry in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(_text(entry) for entry in value) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)
