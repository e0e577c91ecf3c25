"""Commands that take options in groups, and describe their options in their docstrings.

A group is a dataclass with an option for each field. A command takes it as one parameter, and Typer sees its options.
Help texts are those of the sections ``Args`` of commands and ``Attributes`` of groups. Positional parameters are
arguments, keyword-only ones are options. A command with a parameter of the type ``CommandSettings`` has the option
``--set``, and one whose ``out`` is ``NEW`` has ``--overwrite``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, getdoc, signature
from math import inf
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandFunctionType, OptionInfo

from facerts.cli.docstrings import read_docstring
from facerts.cli.output import STDOUT, check_given, check_new
from facerts.cli.settings import OPTION, CommandSettings, keys, read_settings
from facerts.errors import Error

COMMON = "Common options"
# Mark the file or folder that a command writes anew, and what it reads, which must be there before anything is written.
NEW, NEW_FOLDER, GIVEN = "new", "new folder", "given"
SET: Any = Annotated[
    list[str] | None,
    typer.Option(
        OPTION,
        metavar="KEY=VALUE",
        help="A setting for this run, such as provider=cuda; may be repeated. facerts config list has them all.",
        rich_help_panel=COMMON,
    ),
]
OVERWRITE: Any = Annotated[bool, typer.Option("--overwrite", help="Replace what is at --out.")]
# In the message of an error.
_ARGUMENT = re.compile(r"(?<![\w.\-/])(?<!--set )([a-z_]+)=([\w.…]*\w)")
METAVARS = {bool: "", int: "NUMBER", float: "NUMBER", Path: "PATH", str: "TEXT"}


class _OneLook:
    """Arguments and flags as all versions of Typer show them: without the types that newer ones print."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if parameter.param_type_name == "argument":
                name = parameter.metavar or parameter.name.upper()
                usage = [name if parameter.required or name.startswith("[") else f"[{name}]"]
                parameter.get_usage_pieces = lambda ctx, usage=usage: usage
                parameter.display_type_rich = lambda ctx: None
            elif parameter.is_flag:
                parameter.metavar = ""
        return parameters


class Command(_OneLook, TyperCommand):
    """A command."""


class Group(_OneLook, TyperGroup):
    """A group of commands."""


class Commands(typer.Typer):
    """Typer, for commands that may take options in groups."""

    # Whether a wrong setting ends its commands.
    reads_settings = True

    def __init__(self, *, cls: type[TyperGroup] = Group, **options: Any) -> None:
        super().__init__(cls=cls, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """As Typer's."""
        add = super().command(name, cls=Command, **options)

        def register(command: CommandFunctionType) -> CommandFunctionType:
            add(with_option_groups(command, reads_settings=self.reads_settings))
            return command

        return register


def with_option_groups(command: Callable[..., None], *, reads_settings: bool = True) -> Callable[..., None]:
    """A command for Typer, with each parameter that is a group replaced by the options of the group."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {
        name: hint
        for name, hint in hints.items()
        if isinstance(hint, type) and is_dataclass(hint) and hint is not CommandSettings
    }
    takes_settings = next((name for name, hint in hints.items() if hint is CommandSettings), None)
    marks = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    is_new = not {NEW, NEW_FOLDER}.isdisjoint(marks.get("out", ()))
    text, help_texts = read_docstring(getdoc(command) or "")
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            parameters += _options_of(groups[name])
        elif name == takes_settings:
            parameters.append(_option("set_", None, SET))
        else:
            parameters.append(_described(parameter.replace(annotation=hints[name]), help_texts))
            if name == "out" and is_new:
                parameters.append(_option("overwrite", False, OVERWRITE))

    @wraps(command)
    def flat(**values: Any) -> None:
        if reads_settings:
            settings = read_settings(values.pop("set_", None) or ())
            settings.export()
            if takes_settings:
                values[takes_settings] = settings
        if is_new:
            overwrite, resume = values.pop("overwrite"), values.get("resume")
            check_new(values["out"], overwrite=overwrite, resume=resume, folder=NEW_FOLDER in marks["out"])
        check_given(path for name in values if GIVEN in marks.get(name, ()) for path in values[name])
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        try:
            command(**values)
        except Error as error:
            error.args = (_as_typed(str(error), parameters),)
            raise
        except KeyboardInterrupt as error:
            if values.get("resume") is not None and values["out"] not in (None, STDOUT):
                error.args = error.args or ("interrupted; --resume continues",)
            raise

    del flat.__dict__["__wrapped__"]
    # Paragraphs of one line, as newer versions of Typer keep the breaks.
    paragraphs = re.split(r"\n\n|\n(?=Example:)", text)
    flat.__doc__ = escape("\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))
    flat.__dict__["__signature__"] = Signature(parameters)
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _as_typed(message: str, parameters: Sequence[Parameter]) -> str:
    """An error that names arguments as Python does, such as fmr=0.01, as they are given on the command line."""
    options = {}
    for parameter in parameters:
        (info,) = parameter.annotation.__metadata__[:1]
        if isinstance(info, OptionInfo):
            options[parameter.name] = (info.param_decls or (f"--{parameter.name.replace('_', '-')}",))[0]

    def typed(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name in options:
            return f"{options[name]} {value}"
        return f"{OPTION} {name}={value}" if "set_" in options and name in keys() else match[0]

    return _ARGUMENT.sub(typed, message)


def _option(name: str, default: object, annotation: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _options_of(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    help_texts: dict[str, str] = {}
    for base in reversed(group.__mro__[:-1]):
        help_texts |= read_docstring(getdoc(base) or "")[1]
    return [
        _described(
            _option(
                field.name,
                Parameter.empty if field.default is MISSING else field.default,
                hints[field.name],
            ),
            help_texts,
        )
        for field in fields(group)
    ]


def _described(parameter: Parameter, help_texts: Mapping[str, str]) -> Parameter:
    """A parameter with the help text of its name, if there is one, and the name of what it takes."""
    annotation = parameter.annotation
    if get_origin(annotation) is Annotated:
        hint, info = annotation.__origin__, copy(annotation.__metadata__[0])
    else:
        kind = typer.Option if parameter.kind is Parameter.KEYWORD_ONLY else typer.Argument
        hint, info = annotation, kind()
    info.help = escape(help_texts.get(parameter.name, info.help or "")) or None
    if info.metavar is None and parameter.kind is Parameter.KEYWORD_ONLY:
        info.metavar = _metavar(hint)
    for number in {int, float}.intersection((hint, *get_args(hint))):
        info.parser = info.parser or _parser(number, info.min, info.max)
    return parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=Annotated[hint, info])


def _parser(kind: type[int] | type[float], low: float | None, high: float | None) -> Callable[[str], float]:
    """What reads a number of the command line, and refuses others in the same words with all versions of Typer."""
    least, most = -inf if low is None else low, inf if high is None else high

    def number(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a {'whole ' * (kind is int)}number") from None
        if not least <= value <= most:
            raise typer.BadParameter(
                f"{text} is not " + (f"from {low} to {high}" if high is not None else f"at least {low}")
            )
        return value

    return number


def _metavar(hint: Any) -> str | None:
    """What an option of a type takes, as all versions of Typer show it."""
    origin, inner = get_origin(hint), [one for one in get_args(hint) if one is not NoneType]
    if origin is Literal:
        return "|".join(inner)
    if origin in (Union, UnionType, list, Sequence):
        return _metavar(inner[0])
    return METAVARS.get(hint)
