"""The page: what results say, in one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from facerts.errors import MissingExtraError
from facerts.evaluation.result_folder import naming_folders
from facerts.evaluation.results import Comparison
from facerts.io.files import atomic_write
from facerts.report.glossary import terms_of
from facerts.report.impersonal import impersonal
from facerts.report.subject import Subject, load_subjects
from facerts.report.template import open_template, resource
from facerts.version import __version__

if TYPE_CHECKING:
    from facerts.report.page_elements import PageSection

PAGE_FILE = "report.html"
REPORT_EXTRA = "figures and pages need matplotlib and Jinja: pip install 'facerts[report]'"


def write_report(
    folders: Sequence[str | Path], out: str | Path, *, title: str = "facerts report", images: bool = True
) -> None:
    """Write a report on result folders, runs, or folders that are both, side by side, as an .html file.

    Without ``images`` of the data, the page also has no file names, no commands and no paths. Names of models, data
    sets and runs stay.
    """
    with naming_folders(folders):
        subjects = load_subjects(folders)
        write_page(subjects if images else impersonal(subjects), out, title=title)


def write_page(
    subjects: Sequence[Subject],
    out: str | Path,
    *,
    title: str,
    compared: Comparison | None = None,
    first: Sequence[PageSection] = (),
) -> None:
    """Write the page of folders that are read already, with their comparison and with sections before all others."""
    template = open_template("page.html.j2")
    try:
        from facerts.report import sections
        from facerts.report.verdict import verdicts
    except ImportError as error:
        raise MissingExtraError(REPORT_EXTRA) from error
    shown = [
        section for section in (*first, *(make(subjects) for make in sections.SECTIONS)) if section.parts
    ]
    walls = [wall for section in shown for part in section.parts for wall in part.walls]
    content = {
        "title": title,
        "version": __version__,
        "style": resource("page.css"),
        "verdicts": verdicts(subjects, compared),
        # Tables of a comparison say the same and more.
        "summary": sections.summary(subjects) if compared is None else None,
        "sections": shown,
        "images": sum(wall.count for wall in walls),
    }
    terms = terms_of(template.render(content, terms=()))
    with atomic_write(out, "w") as file:
        file.write(template.render(content, terms=terms))
