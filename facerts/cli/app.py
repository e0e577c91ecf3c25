"""The ``facerts`` command: its subcommands, and how errors end it."""

from __future__ import annotations

import sys
from importlib import import_module

import typer

from facerts.errors import Error, NonFiniteLossError
from facerts.progress import stderr

app = typer.Typer(
    name="facerts",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train, export, evaluate and run face embedders that know how far to trust each face.",
)

# One file per command; each has `register(app)`.
COMMANDS = ("data", "train", "export", "score", "embed", "evaluate", "report", "doctor")

EXIT_SOME_FAILED = 1
EXIT_UNUSABLE = 2
EXIT_NON_FINITE = 3
EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line; errors that the user can mend end it with a sentence, not a traceback."""
    for name in COMMANDS:
        import_module(f"facerts.cli.{name}").register(app)
    try:
        app()
    except NonFiniteLossError as error:
        stderr.print(f"[red]error:[/red] {error}", highlight=False)
        sys.exit(EXIT_NON_FINITE)
    except Error as error:
        stderr.print(f"[red]error:[/red] {error}", highlight=False)
        sys.exit(EXIT_UNUSABLE)
    except KeyboardInterrupt:
        stderr.print("interrupted")
        sys.exit(EXIT_INTERRUPTED)
