"""The ``facerts`` command: its subcommands, and how errors end it."""

from __future__ import annotations

import sys
from importlib import import_module

import typer

from facerts.cli.extras import advice
from facerts.cli.output import EXIT_INTERRUPTED, EXIT_NON_FINITE, EXIT_UNUSABLE, print_error
from facerts.errors import Error, NonFiniteLossError

# One file per command; each has `register(app)`.
COMMANDS = (
    "data",
    "train",
    "export",
    "posthoc",
    "score",
    "embed",
    "calibrate",
    "evaluate",
    "compare",
    "report",
    "serve",
    "models",
    "doctor",
)


def build_app() -> typer.Typer:
    """The command line with all its subcommands."""
    app = typer.Typer(
        name="facerts",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Train, export, evaluate and run face embedders that know how far to trust each face.",
    )
    for name in COMMANDS:
        import_module(f"facerts.cli.{name}").register(app)
    return app


def main() -> None:
    """Run the command line; errors that the user can mend end it with a sentence, not a traceback."""
    try:
        build_app()()
    except NonFiniteLossError as error:
        print_error(error)
        sys.exit(EXIT_NON_FINITE)
    except Error as error:
        print_error(error)
        sys.exit(EXIT_UNUSABLE)
    except ModuleNotFoundError as error:
        how = advice(error.name or "")
        if not how:
            raise
        print_error(f"this command needs {error.name}, which is not installed: {how}")
        sys.exit(EXIT_UNUSABLE)
    except KeyboardInterrupt:
        print_error("interrupted")
        sys.exit(EXIT_INTERRUPTED)
