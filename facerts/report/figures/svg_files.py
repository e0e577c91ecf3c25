"""Figures as files that stand by themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from facerts.errors import DataError
from facerts.io.file_names import safe_name
from facerts.io.files import atomic_write

_INK = "#24292f"


def write_svgs(folder: Path, drawn: Sequence[tuple[str, str]]) -> list[Path]:
    """Write figures under their names, with "_" for what does not belong into a file name.

    Returns:
        The files, in the order of the figures.
    """
    paths = [folder / safe_name(re.sub(r"[^\w.+-]+", "_", name) + ".svg") for name, _ in drawn]
    if len(set(paths)) < len(paths):
        names = ", ".join(name for name, _ in drawn)
        raise DataError(f"{folder}: {names} would share a file name; rename labels")
    for path, (_, svg) in zip(paths, drawn, strict=True):
        with atomic_write(path, "w") as file:
            file.write(on_paper(svg))
    return paths


def on_paper(svg: str) -> str:
    """Dark ink on white: a figure by itself has no page to take its colors from."""
    begin = svg.index(">") + 1
    return (
        svg[:begin]
        + '<rect width="100%" height="100%" fill="white"/>'
        + svg[begin:].replace("currentColor", _INK)
    )
