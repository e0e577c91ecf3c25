from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from facerts.cli.option_groups import with_option_groups


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option(min=1, help="Columns.")] = 3
    quiet: Annotated[bool, typer.Option("--quiet", expose_value=False)] = False


@dataclass(frozen=True)
class Required(Size):
    name: Annotated[str, typer.Option("--called")] = "x"
    width: Annotated[int, typer.Option(help="Another default.")] = 5


def test_groups_become_options_and_come_back_as_instances() -> None:
    calls: list[tuple[str, Size, bool]] = []

    @with_option_groups
    def command(path: Annotated[str, typer.Argument()], *, size: Size, json: bool = False) -> None:
        """Do it."""
        calls.append((path, size, json))

    app = typer.Typer()
    app.command()(command)
    for arguments in (["a"], ["b", "--width", "7", "--quiet", "--json"]):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    assert calls == [("a", Size(), False), ("b", Size(7), True)]
    assert CliRunner().invoke(app, ["a", "--width", "0"]).exit_code == 2
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).output
    assert all(text in shown for text in ("Do it.", "--width", "Columns.", "--quiet", "--json"))


def test_a_group_may_extend_another_with_other_defaults() -> None:
    calls: list[Required] = []

    @with_option_groups
    def command(required: Required) -> None:
        calls.append(required)

    app = typer.Typer()
    app.command()(command)
    assert CliRunner().invoke(app, ["--called", "y"]).exit_code == 0
    assert calls == [Required(name="y", width=5)]


def test_two_options_of_one_name_are_refused() -> None:
    def command(size: Size, width: int = 1) -> None: ...

    with pytest.raises(ValueError, match="duplicate parameter name: 'width'"):
        with_option_groups(command)
