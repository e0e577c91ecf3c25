"""The page's sections as Markdown, with their figures as files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from facerts.errors import DataError
from facerts.io.file_names import safe_name
from facerts.io.files import atomic_write
from facerts.report.page_elements import PageSection
from facerts.report.table import escaped, to_markdown

TABLES_FILE = "tables.md"
# Of figures on white: by themselves, they have no page to take their text color from.
INK = "#24292f"


def write_markdown(folder: Path, title: str, introduction: str, sections: Sequence[PageSection]) -> None:
    """Write ``tables.md`` with the tables and texts of sections, and a file for each of their named figures."""
    parts = [(part.title or section.title, part) for section in sections for part in section.parts]
    drawn = [figure for _, part in parts for figure in part.figures if figure.name]
    files: dict[str, str] = {}
    if drawn:
        paths = _write_svgs(folder, [(figure.name, figure.svg) for figure in drawn])
        files = {figure.name: path.name for figure, path in zip(drawn, paths, strict=True)}
    blocks = [f"# {escaped(title)}", escaped(introduction)]
    for heading, part in parts:
        blocks += [f"## {escaped(heading)}", escaped(part.text)]
        blocks += map(to_markdown, part.tables)
        blocks += [
            f"![{escaped(figure.caption)}]({files[figure.name]})\n\n{escaped(figure.caption)}"
            for figure in part.figures
            if figure.name
        ]
        blocks.append("\n".join(f"- {escaped(note)}" for note in part.notes))
    with atomic_write(folder / TABLES_FILE, "w") as file:
        file.write("\n\n".join(filter(None, blocks)) + "\n")


def _write_svgs(folder: Path, drawn: Sequence[tuple[str, str]]) -> list[Path]:
    """Write figures under their names, with "_" for what does not belong into a file name."""
    paths = [folder / safe_name(re.sub(r"[^\w.+-]+", "_", name) + ".svg") for name, _ in drawn]
    if len(set(paths)) < len(paths):
        names = ", ".join(name for name, _ in drawn)
        raise DataError(f"{folder}: {names} would share a file name; rename labels")
    for path, (_, svg) in zip(paths, drawn, strict=True):
        begin = svg.index(">") + 1
        paper = '<rect width="100%" height="100%" fill="white"/>'
        with atomic_write(path, "w") as file:
            file.write(svg[:begin] + paper + svg[begin:].replace("currentColor", INK))
    return paths
