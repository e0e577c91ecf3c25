"""``facerts config``: settings of all commands, in the user's folder and in the current one."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from facerts.cli.option_groups import Commands
from facerts.cli.output import print_raw, print_result
from facerts.cli.settings import (
    FoundSetting,
    check_model,
    checked,
    find_settings,
    flat,
    keys,
    parse_toml,
    project_file,
    read_toml,
    user_file,
)
from facerts.cli.shared_options import Json
from facerts.errors import Error, did_you_mean
from facerts.io.console import say
from facerts.io.files import atomic_write, locked, make_folder

Name = Annotated[str, typer.Argument(metavar="KEY")]
Project = Annotated[bool, typer.Option("--project", help="In facerts.toml in the current folder, not for all folders.")]

config = Commands(no_args_is_help=True, help="Settings of all commands: list, get, set, unset.")
# So that a wrong setting can be corrected.
config.reads_settings = False


@config.command(name="list")
def list_(*, json: Json = False) -> None:
    """List all settings: value, where it was set, and meaning.

    Example: facerts config list
    """
    rows = [row | {"meaning": keys()[row["key"]].help} for row in settings_rows(find_settings())]
    print_result(
        {"user": str(user_file()), "project": str(project_file())},
        json,
        rows,
        [*rows[0]],
        name="settings",
        most=len(rows),
    )


@config.command()
def get(key: Name) -> None:
    """Print the value of a setting; if each command has its own default, standard error says so.

    Example: facerts config get provider

    Args:
        key: Name of the setting.
    """
    (row,) = [row for row in settings_rows(find_settings()) if row["key"] == _known(key)]
    print_raw(row["value"])
    if not row["value"]:
        say(f"{key} is not set. {keys()[key].help}")


@config.command(name="set")
def set_(key: Name, value: str, *, project: Project = False) -> None:
    """Set a setting for all commands.

    Example: facerts config set provider cuda

    Args:
        key: Name of the setting.
        value: Its value; several names with commas between them.
    """
    taken = checked(_known(key), value, "facerts config set")
    if key in ("recognizer", "quality"):
        check_model(key, value, "facerts config set")
    taken = str(taken) if isinstance(taken, Path) else list(taken) if isinstance(taken, tuple) else taken
    _edit(project_file() if project else user_file(), key, taken)


@config.command()
def unset(key: Name, *, project: Project = False) -> None:
    """Remove a setting from the file, even one that facerts no longer knows.

    Example: facerts config unset provider

    Args:
        key: Name of the setting.
    """
    file = project_file() if project else user_file()
    if key not in (there := dict(flat(read_toml(file)))):
        raise Error(f"{file}: {key!r} is not set there{did_you_mean(key, there)}")
    _edit(file, key, None)


def settings_rows(found: Mapping[str, FoundSetting]) -> list[dict[str, str]]:
    """All settings: name, value, and the file, variable or option that set it."""
    return [
        {
            "key": key,
            "value": _text(found[key].value if key in found else default),
            "from": found[key].where if key in found else "default",
        }
        for key, (_, default, _) in keys().items()
    ]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else ",".join(value) if isinstance(value, list | tuple) else str(value)


def _known(key: str) -> str:
    if key not in keys():
        raise Error(f"{key!r} is not a setting{did_you_mean(key, keys()) or '; facerts config list shows all'}")
    return key


def _edit(file: Path, key: str, value: Any) -> None:
    """Write a setting into a file, or take it out of it; comments and all other lines stay."""
    expected = dict(flat(read_toml(file)))
    expected.pop(key, None)
    table, _, name = key.rpartition(".")
    section, lines = "", []
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        if header := re.fullmatch(r"\s*\[([\w.]+)\]\s*(?:#.*)?", line):
            section = f"{header[1]}."
        if section + line.partition("=")[0].strip() != key:
            lines.append(line)
    if value is not None:
        expected[key] = value
        at = next((at + 1 for at, line in enumerate(lines) if table and line.strip() == f"[{table}]"), 0)
        # JSON's strings, numbers and lists are TOML's, too.
        written = json_module.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007f")
        lines.insert(at, f"{name if at else key} = {written}")
    text = "".join(f"{line}\n" for line in lines)
    try:
        right = dict(flat(parse_toml(text, file))) == expected
    except Error:
        right = False
    if not right:
        raise Error(f"{file}: {key} is written there in a form that this command does not change; edit the file")
    make_folder(file.parent)
    with locked(file), atomic_write(file, "w") as to:
        to.write(text)
