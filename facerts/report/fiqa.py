"""The quality league as files: tables in Markdown, figures and a page."""

from __future__ import annotations

from pathlib import Path

from facerts.errors import MissingExtraError
from facerts.evaluation.result_folder import naming_folders
from facerts.report.elements import Cell, Table
from facerts.report.markdown import markdown_table, write_markdown
from facerts.report.page import write_page
from facerts.report.subject import load_subjects

TABLES_FILE, PAGE_FILE = "tables.md", "report.html"


def write_fiqa_report(folder: str | Path, *, title: str = "Quality league") -> None:
    """Write ``tables.md``, the figures and ``report.html`` beside a result with leagues.

    Args:
        folder: the result folder.
        title: title of the pages.

    Raises:
        DataError: the folder has no result, or a broken one.
        MissingExtraError: matplotlib or Jinja is not installed.
    """
    home = Path(folder)
    try:
        from facerts.report import figures
        from facerts.report.fiqa_section import explanation, figures_of
        from facerts.report.fiqa_tables import detail_tables, league_table
        from facerts.report.groups import group_parts
    except ImportError as error:
        raise MissingExtraError(
            "figures and pages need matplotlib and Jinja: pip install 'facerts[report]'"
        ) from error
    with naming_folders([home]):
        (subject,) = load_subjects([home])
        parts = [f"# {title}"]
        for name, section in subject.sections.fiqa.items():
            drawn = figures_of(subject, name, section)
            paths = figures.write_svgs(home, {one.name: one.figure.svg for one in drawn})
            parts += [f"## {name}", explanation(section)]
            parts += [
                markdown(table) for table in (league_table(section), *detail_tables(section)) if table.rows
            ]
            parts += [
                f"![{one.figure.caption}]({path.name})\n\n{one.figure.caption}"
                for one, path in zip(drawn, paths, strict=True)
            ]
            for part in [] if section.groups is None else group_parts(section.groups):
                parts += [f"### {name}, {part.title}", part.text, *(markdown(table) for table in part.tables)]
            parts += [f"- {note}" for note in section.notes]
        write_markdown(home / TABLES_FILE, "\n\n".join(parts) + "\n")
        write_page([subject], home / PAGE_FILE, title=title)


def markdown(table: Table) -> str:
    """A table of the page in Markdown."""
    rows = [[_text(cell) for cell in row] for row in table.rows]
    return markdown_table(table.columns, rows, table.title or None, words=table.words)


def _text(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.bold else cell.text
    if not cell.small:
        return text
    return f"{text} {cell.small if '[' in cell.small else f'({cell.small})'}"
