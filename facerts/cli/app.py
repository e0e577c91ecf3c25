"""The ``facerts`` command with its subcommands and shared options."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from facerts.cli.ending import DEBUG_VARIABLE, ending, report_error
from facerts.cli.option_groups import Commands
from facerts.io.console import printable
from facerts.version import __version__

# One file per command, with a function or a group of that name.
COMMANDS = (
    "data",
    "train",
    "export",
    "posthoc",
    "score",
    "video",
    "embed",
    "verify",
    "gallery",
    "people",
    "calibrate",
    "evaluate",
    "compare",
    "report",
    "serve",
    "web",
    "models",
    "doctor",
)


# What is wrong with arguments: of Click, which some versions of Typer have inside.
_UsageError: Any = typer.BadParameter.__base__


class _Group(TyperGroup):
    """The subcommands; Typer would map some errors to statuses that have another meaning here."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _printable_usage_errors():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _printable_usage_errors():
                return super().invoke(ctx)
        except (BrokenPipeError, EOFError, KeyboardInterrupt) as error:
            sys.exit(report_error(error))


@contextmanager
def _printable_usage_errors() -> Iterator[None]:
    """A pattern of the shell makes arguments of file names; Typer would print them as they are."""
    try:
        yield
    except _UsageError as error:
        error.message = printable(error.message, keep="\n")
        raise


def build_app() -> typer.Typer:
    """The command line with all its subcommands."""
    app = Commands(name="facerts", cls=_Group, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(shared)
    for name in COMMANDS:
        command = getattr(import_module(f"facerts.cli.{name}"), name)
        app.add_typer(command, name=name) if isinstance(command, typer.Typer) else app.command()(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"facerts {__version__}")
        raise typer.Exit


def shared(
    *,
    debug: Annotated[
        bool, typer.Option("--debug", help=f"Show a traceback for errors, like {DEBUG_VARIABLE}=1.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """Train, export, evaluate and run face embedders that know how much to trust each face.

    Args:
        version: Print the version and exit.
    """
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"


def main() -> None:
    """Run the command line; errors end it with a message and a status, see ``facerts.cli.ending``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # File names may contain characters that the encoding of the terminal does not have.
            stream.reconfigure(errors="backslashreplace")
    with ending():
        try:
            build_app()()
        finally:
            sys.stdout.flush()
