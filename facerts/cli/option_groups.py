"""Commands that take options in groups.

A group is a dataclass whose fields are ``Annotated`` with ``typer.Option``. A command takes it as one parameter, and
Typer sees an option for each field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

import typer
from typer.models import CommandFunctionType


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
    """A command for Typer, with each parameter that is a group replaced by the options of the group.

    Raises:
        ValueError: two options have the same name.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            parameters += _options_of(groups[name])
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @wraps(command)
    def flat(**values: Any) -> None:
        for name, group in groups.items():
            # Typer passes no value for an option with expose_value=False.
            own = {field.name: values.pop(field.name) for field in fields(group) if field.name in values}
            values[name] = group(**own)
        command(**values)

    del flat.__dict__["__wrapped__"]
    flat.__dict__["__signature__"] = Signature(parameters)
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _options_of(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
