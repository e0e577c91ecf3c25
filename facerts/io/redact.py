"""Paths and commands for reports and result files, without anything that reveals more of this machine."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

# An option or field whose value may be a path, as in --out=DIR, LABEL=DIR or data.train=DIR.
_NAMED = re.compile(r"([\w.:-]+=)(.*)", re.DOTALL)
# Paths inside a YAML value such as [/a/b, /c/d].
_IN_YAML = re.compile(r"""(?<=[\[{,\s"'])[/.][^\[\]{},"']*""")


def redacted_path(path: str | Path) -> str:
    """A path relative to the working folder if it is inside it; otherwise its last component alone."""
    inside = _inside(path)
    return _last_parts(path, 1) if inside is None else inside


def redacted_paths(paths: Sequence[str | Path]) -> list[str]:
    """Several paths as ``redacted_path`` has them, with parent folders where names would otherwise be the same."""
    shown = [redacted_path(path) for path in paths]
    different = len({os.path.abspath(path) for path in paths})
    depth = 1
    while len(set(shown)) < different:
        depth += 1
        shown = [
            _last_parts(path, depth) if shown.count(name) > 1 and _inside(path) is None else name
            for path, name in zip(paths, shown, strict=True)
        ]
    return shown


def redacted_command() -> list[str]:
    """The command line of this process, as a list of arguments."""
    # The program's name alone: where it is installed is private, too.
    program = Path(sys.argv[0]).name
    return ["facerts" if program == "__main__.py" else program, *map(redacted_argument, sys.argv[1:])]


def redacted_argument(argument: str) -> str:
    """A command-line argument, with the paths in it as ``redacted_path`` has them."""
    named = _NAMED.fullmatch(argument)
    name, value = (named[1], named[2]) if named else ("", argument)
    if value[:1] in ("[", "{"):
        return name + _IN_YAML.sub(lambda match: redacted_path(match[0]), value)
    return name + redacted_path(value)


def _inside(path: str | Path) -> str | None:
    """A path relative to the working folder; None if it is not inside it."""
    if not os.path.isabs(path) and os.path.normpath(path).split(os.sep)[0] != os.pardir:
        return str(path)
    relative = os.path.relpath(path)
    return relative if relative.split(os.sep)[0] != os.pardir else None


def _last_parts(path: str | Path, depth: int) -> str:
    return os.path.join(*Path(os.path.abspath(path)).parts[-depth:])
