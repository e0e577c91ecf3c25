"""Scripts as a shell would run them, in this process: starting Python and importing takes longer than most of them."""

import importlib
import io
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

EVAL, TOOLS = (Path(__file__).parents[1] / name for name in ("eval", "tools"))


def run_script(path: Path, *arguments: object) -> CompletedProcess[str]:
    """The script's exit status and what it printed."""
    command = [str(path), *map(str, arguments)]
    out, errors, status = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.setattr(sys, "argv", command)
        patch.syspath_prepend(str(path.parent))
        try:
            runpy.run_path(command[0], run_name="__main__")
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            errors.write(ended.code if isinstance(ended.code, str) else "")
    return CompletedProcess(command, status, out.getvalue(), errors.getvalue())


def load_script(name: str, folder: Path = EVAL) -> Any:
    """A script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        return importlib.import_module(name)


def cells_of(printed: str) -> list[list[str]]:
    """The cells of the rows of all printed Markdown tables, their headings too."""
    lines = [line for line in printed.splitlines() if line.startswith("|") and "| ---" not in line]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
