"""Output of commands: results on standard output, everything else on standard error."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from facerts.io.console import printable, say
from facerts.io.console import warn as warn
from facerts.io.json_file import json_text

if TYPE_CHECKING:
    from facerts.report.table import Table as ResultTable

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


class _Output(Console):
    """Standard output; a broken pipe is handled where the command ends."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


# Tables have a fixed width in files and pipes, and fit the terminal otherwise.
stdout = _Output(width=None if sys.stdout.isatty() else 160)


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


def warn_first(problems: Sequence[object], where: str) -> None:
    """Print the first of many problems, and where all of them are."""
    for problem in problems[:SHOWN_ERRORS]:
        warn(problem)
    if len(problems) > SHOWN_ERRORS:
        warn(f"and {len(problems) - SHOWN_ERRORS:,} more; {where} them all")


def text_cell(text: object, style: str = "") -> Text:
    """Text from outside as a cell of a table; brackets in it are not markup."""
    return Text(printable(text), style)


def fields_table(fields: Mapping[str, Any], console: Console | None = None) -> None:
    """Print names and values, one row each, on standard output or another console."""
    table = Table(show_header=False, box=None)
    for name, value in fields.items():
        table.add_row(text_cell(name.replace("_", " ")), text_cell(_text(value)))
    (console or stdout).print(table)


def rows_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> None:
    """Print a table with a header; so many of its first columns are text, the others numbers."""
    table = Table(title=text_cell(title, "table.title"), title_justify="left")
    for position, name in enumerate(header):
        table.add_column(text_cell(name), justify="left" if position < words else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(text_cell, row))
    stdout.print(table)


def print_table(table: ResultTable, title: str | None = None) -> None:
    """Print a table of a result, as the page shows it, under its own title or another."""
    from facerts.report.table import plain

    rows = [[plain(cell) for cell in row] for row in table.rows]
    rows_table(title or table.title, table.columns, rows, words=table.words)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(entry)}" for name, entry in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(_text(entry) for entry in value) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)
