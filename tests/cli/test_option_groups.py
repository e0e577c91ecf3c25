from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from facerts.cli.option_groups import with_option_groups


@dataclass(frozen=True)
class Size:
    """A size.

    Attributes:
        width: Number of
            columns.
    """

    width: Annotated[int, typer.Option(min=1)] = 3


@dataclass(frozen=True)
class Named(Size):
    name: Annotated[str, typer.Option("--called")] = "x"
    width: int = 5


def test_groups_become_options_and_come_back_as_instances():
    calls: list[tuple[str, Size, bool]] = []

    @with_option_groups
    def command(path: str, *, out: str, size: Size, json: bool = False) -> None:
        """Do it.

        Example: do it

        Args:
            path: Where to begin.
            out: Where to end.
        """
        assert out == "o"
        calls.append((path, size, json))

    app = typer.Typer()
    app.command()(command)
    for arguments in (["a", "--out", "o"], ["b", "--out", "o", "--width", "7", "--json"]):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    assert calls == [("a", Size(), False), ("b", Size(7), True)]
    assert CliRunner().invoke(app, ["a", "--out", "o", "--width", "0"]).exit_code == 2
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).output
    texts = ("Do it.", "Example: do it", "Where to begin.", "Where to end.", "Number of columns.")
    assert all(text in shown for text in texts)
    assert "Args:" not in shown


def test_a_group_may_extend_another_with_other_defaults():
    calls: list[Named] = []

    @with_option_groups
    def command(named: Named) -> None:
        calls.append(named)

    app = typer.Typer()
    app.command()(command)
    assert CliRunner().invoke(app, ["--called", "y"]).exit_code == 0
    assert calls == [Named(name="y", width=5)]


def test_two_options_of_one_name_are_refused():
    def command(size: Size, width: int = 1) -> None: ...

    with pytest.raises(ValueError, match="duplicate parameter name: 'width'"):
        with_option_groups(command)
