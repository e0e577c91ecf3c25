"""Paths and commands as others may see them, in reports and result files: what else is on this machine is not told."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

# An option or field that a path may be the value of, as in --out=DIR, LABEL=DIR or data.train=DIR.
_NAMED = re.compile(r"([\w.:-]+=)(.*)", re.DOTALL)
# Paths in a value of YAML, such as [/a/b, /c/d].
_IN_YAML = re.compile(r"""(?<=[\[{,\s"'])[/.][^\[\]{},"']*""")


def shown_path(path: str | Path) -> str:
    """A path in the working folder as it leads there from it; any other by its name alone."""
    inside = _inside(path)
    return _end(path, 1) if inside is None else inside


def shown_paths(paths: Sequence[str | Path]) -> list[str]:
    """Several paths, of which none is shown as another: where names are the same, folders stand before them."""
    shown = [shown_path(path) for path in paths]
    different = len({os.path.abspath(path) for path in paths})
    depth = 1
    while len(set(shown)) < different:
        depth += 1
        shown = [
            _end(path, depth) if shown.count(name) > 1 and _inside(path) is None else name
            for path, name in zip(paths, shown, strict=True)
        ]
    return shown


def shown_command() -> list[str]:
    """This process's command, as a list of arguments."""
    # Where the program is installed is nobody's business either.
    program = Path(sys.argv[0]).name
    return ["facerts" if program == "__main__.py" else program, *map(shown_argument, sys.argv[1:])]


def shown_argument(argument: str) -> str:
    """An argument of a command, with the paths in it as ``shown_path`` has them."""
    named = _NAMED.fullmatch(argument)
    name, value = (named[1], named[2]) if named else ("", argument)
    if value[:1] in ("[", "{"):
        return name + _IN_YAML.sub(lambda found: shown_path(found[0]), value)
    return name + shown_path(value)


def _inside(path: str | Path) -> str | None:
    """The way from the working folder to what is in it; None for what is not."""
    if not os.path.isabs(path) and os.path.normpath(path).split(os.sep)[0] != os.pardir:
        return str(path)
    way = os.path.relpath(path)
    return way if way.split(os.sep)[0] != os.pardir else None


def _end(path: str | Path, depth: int) -> str:
    return os.path.join(*Path(os.path.abspath(path)).parts[-depth:])
