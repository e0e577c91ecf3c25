"""List every feature, one a line: commands with their options, public names, settings, recipes, models and pages.

python tools/features.py > features.txt; `diff` of two lists shows what a change added and what it took away.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from facerts.cli.app import build_app
from facerts.losses import LOSSES
from facerts.losses.face_loss import setting_names

ROOT = Path(__file__).resolve().parents[1]


def commands(command: Any, name: str = "facerts") -> Iterator[str]:
    """A command with its visible options and arguments, then its subcommands."""
    if command.hidden:
        return
    yield f"command {name}"
    for parameter in command.params:
        if not getattr(parameter, "hidden", False) and parameter.name != "help":
            flags = "/".join([*parameter.opts, *parameter.secondary_opts])
            yield f"option {name} {flags if parameter.param_type_name == 'option' else parameter.name.upper()}"
    for key, below in sorted(getattr(command, "commands", {}).items()):
        yield from commands(below, f"{name} {key}")


def public_names() -> Iterator[str]:
    """What the packages export, and what the API reference names."""
    for path in sorted((ROOT / "facerts").rglob("__init__.py")):
        module = ".".join(path.parent.relative_to(ROOT).parts)
        try:
            exported = getattr(importlib.import_module(module), "__all__", ())
        except ModuleNotFoundError:  # an integration whose package is not installed
            continue
        yield from (f"name {module}.{name}" for name in exported)
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            yield f"reference {name}"


def settings() -> Iterator[str]:
    """Losses with their settings."""
    for name, loss in LOSSES.items():
        yield from (f"setting {name}.{field}" for field in setting_names(loss))


def files() -> Iterator[str]:
    """Recipes, models and pages."""
    for pattern in ("recipes/**/*.yaml", "models/*.onnx", "docs/**/*.md", "*.md"):
        yield from (f"file {path.relative_to(ROOT).as_posix()}" for path in sorted(ROOT.glob(pattern)))


if __name__ == "__main__":
    app = typer.main.get_command(build_app())
    for line in (*commands(app), *public_names(), *settings(), *files()):
        print(line)
