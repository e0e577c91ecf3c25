"""The page: what results say, in one HTML file that needs nothing else, also without what may name or show a person."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from facerts.errors import MissingExtraError, install_hint
from facerts.evaluation.result import Result
from facerts.evaluation.result_folder import naming_folders
from facerts.evaluation.saved_result import SavedResult, load_saved
from facerts.io.files import atomic_write
from facerts.report.glossary import terms_of
from facerts.report.markdown import write_markdown
from facerts.report.page_elements import open_template, resource
from facerts.version import __version__

if TYPE_CHECKING:
    from facerts.report.page_elements import PageSection


PAGE_FILE = "report.html"
REPORT_EXTRA = f"figures need matplotlib: {install_hint('use')}"
_LETTER = re.compile(r"[^\W\d_]")
_WORD = re.compile(r"\S+")
# In paths and file names.
_OF_FILES = re.compile(r"/|\w\.\w")
_HIDDEN = "…"


def write_report(
    folders: Sequence[str | Path], out: str | Path, *, title: str = "facerts report", images: bool = True
) -> None:
    """Write a report on result folders, runs, or folders that are both, side by side, as an .html file.

    Without ``images`` of the data, the page also has no file names, no commands and no paths. Names of models, data
    sets and runs stay.
    """
    with naming_folders(folders):
        runs = load_saved(folders)
        write_page(runs if images else impersonal(runs), out, title=title)


def write_folder_report(folder: str | Path, *, title: str) -> None:
    """Write ``tables.md``, the figures and ``report.html`` beside a result."""
    home = Path(folder)
    try:
        from facerts.report.sections import evaluations
    except ImportError as error:
        raise MissingExtraError(REPORT_EXTRA) from error
    with naming_folders([home]):
        runs = load_saved([home])
        write_markdown(home, title, "", evaluations(runs))
        write_page(runs, home / PAGE_FILE, title=title)


def write_page(
    runs: Sequence[SavedResult],
    out: str | Path,
    *,
    title: str,
    between: Sequence[tuple[str, list[str]]] | None = None,
    first: Sequence[PageSection] = (),
) -> None:
    """Write the page of folders that are read already.

    Args:
        between: what a comparison found, by topic.
        first: sections before all others, such as a comparison's tables.
    """
    template = open_template("page.html.j2")
    try:
        from facerts.report import sections
    except ImportError as error:
        raise MissingExtraError(REPORT_EXTRA) from error
    shown = [
        section
        for section in (
            *first,
            *sections.evaluations(runs),
            sections.training(runs),
            sections.provenance(runs),
        )
        if section.parts
    ]
    walls = [wall for section in shown for part in section.parts for wall in part.walls]
    content = {
        "title": title,
        "version": __version__,
        "style": resource("page.css"),
        "verdicts": sections.verdicts(runs, between),
        # Tables of a comparison say the same and more.
        "summary": sections.summary(runs) if between is None else None,
        "sections": shown,
        "images": sum(wall.count for wall in walls),
    }
    terms = terms_of(template.render(content, terms={}))
    with atomic_write(out, "w") as file:
        file.write(template.render(content, terms=terms))


def impersonal(runs: Sequence[SavedResult]) -> list[SavedResult]:
    """The same without images, names of images, commands and paths.

    Models and runs of one name are numbered, where otherwise their folders tell them apart.
    """
    names = [one.model.name if one.result else one.folder.name for one in runs]
    times, seen, found = Counter(names), Counter[str](), []
    for run, name in zip(runs, names, strict=True):
        seen[name] += 1
        label = name if times[name] == 1 else f"{name} ({seen[name]})"
        arrays = {
            key: array
            for key, array in run.arrays.items()
            if not key.rpartition("/")[2].startswith(("shown_", "names"))
        }
        result = None if run.result is None else _without_names(run.result, _names(run))
        found.append(replace(run, label=label, result=result, arrays=arrays))
    return found


def _without_names(result: Result, names: Sequence[str]) -> Result:
    result = result.model_copy(deep=True)
    result.command = []
    for _, _, section in result.each():
        section.excluded = {}
        section.notes = [_without(note, names) for note in section.notes]
    return result


def _without(note: str, names: Sequence[str]) -> str:
    for name in names:
        note = note.replace(name, _HIDDEN)
    return _WORD.sub(lambda word: _HIDDEN if _OF_FILES.search(word[0]) else word[0], note)


def _names(run: SavedResult) -> list[str]:
    """Of all images, the longest first: one may begin another. Those without a letter would hide numbers."""
    listed = [array.tolist() for key, array in run.arrays.items() if key.endswith("/names")]
    found = {str(name) for names in listed for name in names}
    return sorted(filter(_LETTER.search, found), key=len, reverse=True)
