"""The ``facerts`` command: its subcommands, and what all of them share."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from facerts.cli.ending import DEBUG_VARIABLE, ending, tell
from facerts.version import __version__

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


class _Group(TyperGroup):
    """The subcommands; Typer would give some of their errors a status that means something else here."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, EOFError, KeyboardInterrupt) as error:
            sys.exit(tell(error))


def build_app() -> typer.Typer:
    """The command line with all its subcommands."""
    app = typer.Typer(
        name="facerts",
        cls=_Group,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(shared)
    for name in COMMANDS:
        import_module(f"facerts.cli.{name}").register(app)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"facerts {__version__}")
        raise typer.Exit


def shared(
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help=f"Show where in the program an error happened, as {DEBUG_VARIABLE}=1 does."
        ),
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Train, export, evaluate and run face embedders that know how far to trust each face."""
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"


def main() -> None:
    """Run the command line; every error ends it with a sentence and a status, see ``facerts.cli.ending``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names of files may hold what the terminal's encoding, or any, does not.
            stream.reconfigure(errors="backslashreplace")
    with ending():
        try:
            build_app()()
        finally:
            sys.stdout.flush()
