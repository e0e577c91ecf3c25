"""The page: tables and figures from result folders, in one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from facerts.errors import MissingExtraError
from facerts.evaluation.result_folder import naming_folders
from facerts.evaluation.results import Comparison
from facerts.evaluation.results.comparison import ComparisonTable
from facerts.io.files import atomic_write
from facerts.report.markdown import spread
from facerts.report.subject import Subject, load_subjects
from facerts.version import __version__


class Figure(NamedTuple):
    """An SVG element with its caption; a wide one has panels side by side."""

    svg: str
    caption: str
    wide: bool = False


class Topic(NamedTuple):
    """Tables of a comparison, each with its columns of words, and figures, under a heading."""

    heading: str
    tables: list[tuple[ComparisonTable, dict[str, list[str]]]]
    figures: list[Figure]


def write_report(folders: Sequence[str | Path], out: str | Path, *, title: str = "facerts report") -> None:
    """Write a report on one or several folders, side by side.

    Args:
        folders: result folders, runs, or folders that are both.
        out: the .html file.
        title: of the page.

    Raises:
        DataError: a folder has nothing to report, or it is broken.
        MissingExtraError: matplotlib or Jinja is not installed.
    """
    with naming_folders(folders):
        write_page(load_subjects(folders), out, title=title)


def write_page(
    subjects: Sequence[Subject],
    out: str | Path,
    *,
    title: str,
    compared: Comparison | None = None,
    topics: Sequence[Topic] = (),
) -> None:
    """Write the page of folders that are read already.

    Args:
        subjects: what it is about.
        out: the .html file.
        title: of the page.
        compared: a comparison of ``facerts.evaluation.compare``.
        topics: its tables and figures.

    Raises:
        MissingExtraError: matplotlib or Jinja is not installed.
    """
    try:
        import jinja2

        from facerts.report import sections
    except ImportError as error:
        raise MissingExtraError("reports need matplotlib and Jinja: pip install 'facerts[report]'") from error
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_resource),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = _number
    environment.filters["signed"] = _signed
    environment.filters["interval"] = _interval
    environment.filters["count"] = _count
    environment.filters["spread"] = spread
    page = environment.get_template("page.html.j2").render(
        title=title,
        version=__version__,
        style=_resource("page.css"),
        subjects=subjects,
        comparison=compared,
        topics=topics,
        # Tables of a comparison say the same and more.
        summary=sections.summary(subjects) if compared is None else None,
        verification=sections.verification(subjects),
        reject=sections.reject(subjects),
        ood=sections.ood(subjects),
        corruptions=sections.corruptions(subjects),
        identification=sections.identification(subjects),
        training=sections.training(subjects),
        provenance=sections.provenance(subjects),
    )
    with atomic_write(out, "w") as file:
        file.write(page)


def _resource(name: str) -> str:
    return resources.files("facerts.report").joinpath(name).read_text(encoding="utf-8")


def _number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def _interval(values: Sequence[float] | None, signed: bool = False) -> str:
    if values is None:
        return ""
    low, high = (_signed(value) if signed else f"{value:.4f}" for value in values)
    return f"[{low}, {high}]"


def _count(value: int) -> str:
    return f"{value:,}"
