"""The quality league as files: tables in Markdown, figures and a page."""

from __future__ import annotations

from pathlib import Path

from facerts.errors import MissingExtraError
from facerts.evaluation.result_folder import naming_folders
from facerts.report.markdown import write_markdown
from facerts.report.page import PAGE_FILE, REPORT_EXTRA, write_page
from facerts.report.subject import load_subjects


def write_league_report(folder: str | Path, *, title: str = "Quality league") -> None:
    """Write ``tables.md``, the figures and ``report.html`` beside a result with leagues."""
    home = Path(folder)
    try:
        from facerts.report.league_section import league
    except ImportError as error:
        raise MissingExtraError(REPORT_EXTRA) from error
    with naming_folders([home]):
        (subject,) = load_subjects([home])
        write_markdown(home, title, "", [league([subject])])
        write_page([subject], home / PAGE_FILE, title=title)
