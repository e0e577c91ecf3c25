"""Output of commands: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from facerts.io.console import printable, say
from facerts.io.console import warn as warn

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
    print(json.dumps(result, ensure_ascii=False, indent=1))


def print_sentence(text: object) -> None:
    """Print a sentence of a result."""
    stdout.print(escape(printable(text)), highlight=False, soft_wrap=True)


def print_error(text: object) -> None:
    """Print why the command failed; brackets in the text are not markup."""
    say(text, before="[red]error:[/red] ")


def warn_first(problems: Sequence[object], where: str) -> None:
    """Print the first of many problems, and where all of them are."""
    for problem in problems[:SHOWN_ERRORS]:
        warn(problem)
    if len(problems) > SHOWN_ERRORS:
        warn(f"and {len(problems) - SHOWN_ERRORS:,} more; {where} them all")


def fields_table(fields: Mapping[str, Any], console: Console | None = None) -> None:
    """Print names and values, one row each, on standard output or another console."""
    table = Table(show_header=False, box=None)
    for name, value in fields.items():
        table.add_row(name.replace("_", " "), escape(_text(value)))
    (console or stdout).print(table)


def rows_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> None:
    """Print a table with a header; so many of its first columns are text, the others numbers."""
    table = Table(title=escape(title), title_justify="left")
    for position, name in enumerate(header):
        table.add_column(name, justify="left" if position < words else "right")
    for row in rows:
        table.add_row(*[escape(cell) for cell in row])
    stdout.print(table)


def print_table(table: ResultTable, title: str | None = None) -> None:
    """Print a table of a result, as the page shows it, under its own title or another."""
    from facerts.report.numbers import SPACE
    from facerts.report.table import plain

    rows = [[plain(cell).replace(SPACE, " ") for cell in row] for row in table.rows]
    header = [column.replace(SPACE, " ") for column in table.columns]
    rows_table((title or table.title).replace(SPACE, " "), header, rows, words=table.words)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(entry)}" for name, entry in value.items())
    if isinstance(value, list):
        return ", ".join(_text(entry) for entry in value) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)
