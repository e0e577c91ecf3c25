"""Commands that take options in groups, and describe their options in their docstrings.

A group is a dataclass with an option for each field. A command takes it as one parameter, and Typer sees its options.
Help texts are those of the sections ``Args`` of commands and ``Attributes`` of groups. Positional parameters are
arguments, keyword-only ones are options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, getdoc, signature
from typing import Annotated, Any, get_origin, get_type_hints

import typer
from typer.models import CommandFunctionType

_SECTION = re.compile(r"\n\n(?:Args|Attributes):\n(?=    )")


class Commands(typer.Typer):
    """Typer, for commands that may take options in groups."""

    def command(
        self, name: str | None = None, **settings: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """As Typer's."""
        add = super().command(name, **settings)

        def register(command: CommandFunctionType) -> CommandFunctionType:
            add(with_option_groups(command))
            return command

        return register


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command for Typer, with each parameter that is a group replaced by the options of the group."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    text, help_texts = _read_docstring(command)
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            parameters += _options_of(groups[name])
        else:
            parameters.append(_described(parameter.replace(annotation=hints[name]), help_texts))

    @wraps(command)
    def flat(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    del flat.__dict__["__wrapped__"]
    flat.__doc__ = text
    flat.__dict__["__signature__"] = Signature(parameters)
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _options_of(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    help_texts: dict[str, str] = {}
    for base in reversed(group.__mro__[:-1]):
        help_texts |= _read_docstring(base)[1]
    return [
        _described(
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            ),
            help_texts,
        )
        for field in fields(group)
    ]


def _described(parameter: Parameter, help_texts: Mapping[str, str]) -> Parameter:
    """A parameter with the help text of its name, if there is one."""
    annotation = parameter.annotation
    if (text := help_texts.get(parameter.name)) is not None:
        if get_origin(annotation) is Annotated:
            hint, info = annotation.__origin__, copy(annotation.__metadata__[0])
        else:
            kind = typer.Option if parameter.kind is Parameter.KEYWORD_ONLY else typer.Argument
            hint, info = annotation, kind()
        info.help = text
        annotation = Annotated[hint, info]
    return parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=annotation)


def _read_docstring(of: Any) -> tuple[str, dict[str, str]]:
    """The text of a docstring without the section of its parameters, and their descriptions."""
    text, *sections = _SECTION.split(getdoc(of) or "")
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", "".join(sections), flags=re.MULTILINE)
    return text, {name: " ".join(description.split()) for name, description in entries}
