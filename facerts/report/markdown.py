"""The page's sections as Markdown, with their figures as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from facerts.io.files import atomic_write
from facerts.report.page_elements import PageSection
from facerts.report.table import escaped, to_markdown

TABLES_FILE = "tables.md"


def write_markdown(folder: Path, title: str, introduction: str, sections: Sequence[PageSection]) -> None:
    """Write ``tables.md`` with the tables and texts of sections, and a file for each of their named figures."""
    parts = [(part.title or section.title, part) for section in sections for part in section.parts]
    drawn = [figure for _, part in parts for figure in part.figures if figure.name]
    files: dict[str, str] = {}
    if drawn:
        from facerts.report.figures import write_svgs

        paths = write_svgs(folder, [(figure.name, figure.svg) for figure in drawn])
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
