"""The ``facerts`` command with its subcommands and shared options."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from facerts.cli.ending import DEBUG_VARIABLE, ending, report_error
from facerts.cli.option_groups import Commands, Group, with_option_groups
from facerts.cli.settings import OPTION, keys
from facerts.io.console import printable
from facerts.version import __version__

# One file per command, with a function or a group of that name, in the order of the help.
COMMANDS = (
    "score",
    "verify",
    "gallery",
    "people",
    "video",
    "serve",
    "embed",
    "calibrate",
    "evaluate",
    "compare",
    "report",
    "data",
    "train",
    "export",
    "posthoc",
    "web",
    "models",
    "config",
    "doctor",
)


# What is wrong with arguments: of Click, which some versions of Typer have inside.
_UsageError: Any = typer.BadParameter.__base__


class _Root(Group):
    """The subcommands; Typer would map some errors to statuses that have another meaning here, and sort groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS]

    def make_context(self, info_name: Any, args: list[str], *arguments: Any, **options: Any) -> Any:
        self._line = list(args)
        with self._worded_errors():
            return super().make_context(info_name, args, *arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        try:
            with self._worded_errors():
                return super().invoke(ctx)
        except (BrokenPipeError, EOFError, KeyboardInterrupt) as error:
            sys.exit(report_error(error))

    @contextmanager
    def _worded_errors(self) -> Iterator[None]:
        """A pattern of the shell makes arguments of file names; Typer would print them as they are."""
        try:
            yield
        except _UsageError as error:
            if setting := _setting_for(error, self._line):
                advice = f"use {OPTION} {setting}, or facerts config set {setting.replace('=', ' ')}"
                error = _UsageError(f"{setting.partition('=')[0]} is a setting: {advice}", error.ctx)
            error.message = printable(error.message, keep="\n")
            raise error


def _setting_for(error: Any, line: Sequence[str]) -> str | None:
    """What ``--set`` takes in place of an option that a command does not have: provider=cuda for --provider cuda."""
    option = getattr(error, "option_name", None)
    if not option or not any(OPTION in parameter.opts for parameter in error.ctx.command.params):
        return None
    name = {"--cache": "output_cache"}.get(option, option.removeprefix("--").replace("-", "_"))
    value = "false" if name.startswith("no_") else None
    name = name.removeprefix("no_")
    key = next((key for key in keys() if key.rpartition(".")[2] in (name, f"{name}s")), None)
    for at, word in enumerate(line):
        if value is None and word.partition("=")[0] == option:
            value = word.partition("=")[2] or next(iter(line[at + 1 :]), None)
    return None if key is None else f"{key}={value or 'VALUE'}"


def build_app() -> typer.Typer:
    """The command line with all its subcommands."""
    app = Commands(name="facerts", cls=_Root, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(with_option_groups(shared, reads_settings=False))
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
    """Score, compare and search faces, with a quality for each; train and evaluate face recognition models.

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
    # A queue or a container that ends a command gets what Ctrl-C gets.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ending():
        try:
            build_app()()
        finally:
            sys.stdout.flush()
