"""Several methods side by side: tables and figures of a comparison, as files and on one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from facerts.errors import DataError, MissingExtraError
from facerts.evaluation.compare import MethodRuns
from facerts.evaluation.compare.ood import ood_auroc
from facerts.evaluation.compare.verification import accuracy_sets, mean_accuracy
from facerts.evaluation.result_folder import naming_folders
from facerts.evaluation.results import Comparison
from facerts.report.comparison_sections import differences, side_by_side
from facerts.report.elements import Figure
from facerts.report.markdown import comparison_markdown, write_markdown
from facerts.report.numbers import rate
from facerts.report.page import write_page
from facerts.report.subject import Subject, by_name, read_log, subject_of

TABLES_FILE, PAGE_FILE = "tables.md", "report.html"
# What the figures show; every method has it if it has any score at all.
SCORE = "quality"

# Every method's label and runs.
Named = Sequence[tuple[str, Sequence[Subject]]]


class Material(NamedTuple):
    """What figures are drawn from."""

    methods: Sequence[MethodRuns]
    subjects: Named
    comparison: Comparison

    @property
    def runs(self) -> list[Subject]:
        """Those of all methods."""
        return [run for _, runs in self.subjects for run in runs]


class Drawn(NamedTuple):
    """A figure: its file's name, SVG and what it shows."""

    name: str
    svg: str
    caption: str


def write_comparison_report(
    methods: Sequence[MethodRuns],
    subjects: Named,
    comparison: Comparison,
    folder: str | Path,
    *,
    title: str = "facerts comparison",
) -> None:
    """Write ``tables.md``, the figures and ``report.html``.

    Args:
        methods: with their results.
        subjects: the same with their training logs, of ``subjects_of``.
        comparison: from ``facerts.evaluation.compare``.
        folder: made if it is not there.
        title: title of the pages.

    Raises:
        DataError: a result or a log is broken.
        MissingExtraError: matplotlib or Jinja is not installed; ``tables.md`` is written all the same.
    """
    home = Path(folder)
    try:
        from facerts.report import figures
    except ImportError as error:
        write_markdown(home / TABLES_FILE, comparison_markdown(comparison, title, {}))
        raise MissingExtraError(
            "figures and pages need matplotlib and Jinja: pip install 'facerts[report]'"
        ) from error
    material = Material(methods, subjects, comparison)
    with naming_folders([run.folder for method in methods for run in method.runs]):
        drawn = {topic: draw(material) for topic, draw in _FIGURES.items()}
        every = [one for found in drawn.values() for one in found]
        paths = figures.write_svgs(home, {one.name: one.svg for one in every})
        names = {one.name: path.name for one, path in zip(every, paths, strict=True)}
        listed = {topic: [(names[one.name], one.caption) for one in found] for topic, found in drawn.items()}
        write_markdown(home / TABLES_FILE, comparison_markdown(comparison, title, listed))
        shown = {topic: [Figure(one.svg, one.caption) for one in found] for topic, found in drawn.items()}
        first = (side_by_side(comparison, shown), differences(comparison))
        write_page(material.runs, home / PAGE_FILE, title=title, compared=comparison, first=first)


def subjects_of(methods: Sequence[MethodRuns], logs: Sequence[str] = ()) -> list[tuple[str, list[Subject]]]:
    """Every method's runs, with their training logs.

    Args:
        methods: with their results.
        logs: training logs or runs as ``LABEL=PATH``; the second of a label is its second run's. A result folder that
            has a ``log.jsonl`` needs none.

    Raises:
        DataError: a log of no method, or more logs than runs.
    """
    paths: dict[str, list[Path]] = {method.label: [] for method in methods}
    for text in logs:
        label, _, where = text.rpartition("=")
        if label not in paths:
            raise DataError(
                f"--log {text}: give it as LABEL=PATH, with the label of a result: {', '.join(paths)}"
            )
        paths[label].append(Path(where))
    found = []
    for method in methods:
        given = paths[method.label]
        if len(given) > len(method.runs):
            raise DataError(
                f"{method.label}: {len(given)} logs for {len(method.runs)} results; give one for each"
            )
        runs = [subject_of(run, method.shown(run)) for run in method.runs]
        for number, path in enumerate(given):
            runs[number] = runs[number].with_log(read_log(path))
        found.append((method.label, runs))
    return found


def _balance(material: Material) -> list[Drawn]:
    """Of the methods that have both numbers in all runs."""
    from facerts.report import figures

    sets = accuracy_sets(material.methods)
    if not sets:
        return []
    points: list[tuple[str, list[figures.Point]]] = []
    for method in material.methods:
        both = [(ood_auroc(run, SCORE), mean_accuracy(run, sets)) for run in method.runs]
        points.append(
            (method.label, [figures.Point(x, y) for x, y in both if x is not None and y is not None])
        )
    if not any(runs for _, runs in points):
        return []
    caption = (
        f"Accuracy ({'mean of ' if len(sets) > 1 else ''}{', '.join(sets)}) against the AUROC of faces and non-faces "
        "by quality, with 95 % intervals. Up and to the right is better."
    )
    if any(len(runs) > 1 for _, runs in points):
        caption += " Of several runs: small points, and their mean with bars from the lowest to the highest."
    return [Drawn("balance", figures.balance(points, SCORE, sets), caption)]


def _scores(material: Material) -> list[Drawn]:
    from facerts.report import figures

    having = [run for run in material.runs if run.sections.ood is not None and SCORE in run.sections.ood.by]
    drawn = _balance(material)
    if having:
        caption = "Distributions of quality: faces as lines, non-faces filled. Each model has its own scale."
        drawn.append(Drawn("scores", figures.score_panels(having, SCORE), caption))
    return drawn


def _reject(material: Material) -> list[Drawn]:
    from facerts.report import figures

    drawn = []
    for name, compared in material.comparison.curves.items():
        curves = {(one.method, one.score): np.array(one.fnmr) for one in compared.by}
        scores = list(dict.fromkeys(score for _, score in curves))
        panels = {
            score: [
                (method.label, curves.get((method.label, score), np.empty((0, 0))))
                for method in material.methods
            ]
            for score in scores
        }
        label = f"FNMR at FMR {rate(compared.fmr)}, {name}"
        caption = (
            f"FNMR on {name} while the genuine pairs of lowest {' or '.join(scores)} are left out; similarities and "
            f"threshold of {compared.embedding}."
        )
        if any(len(method.runs) > 1 for method in material.methods):
            caption += " Of several runs: their mean, and the band from the lowest to the highest."
        svg = figures.one_embedding_curves(panels, compared.rejected, compared.oracle_fnmr, label)
        drawn.append(Drawn(f"reject_{name}", svg, caption))
    return drawn


def _blur(material: Material) -> list[Drawn]:
    from facerts.report import figures

    steps = figures.blur_steps()
    drawn = []
    for source, measured in by_name(material.runs, lambda sections: sections.corruptions).items():
        keys = {label: f"corruptions/{source}/{step}/{SCORE}" for label, step in steps.items()}
        values = {
            run.label: {label: run.arrays[key] for label, key in keys.items()}
            for run in material.runs
            if all(key in run.arrays for key in keys.values())
        }
        if values:
            images = next(section.images for run, section in measured if run.label in values)
            caption = (
                f"Quality of {images:,} faces of {source}, original and with Gaussian blur (radii in pixels of a "
                "crop of 112). Each model has its own scale."
            )
            svg = figures.blur_panels(values, SCORE, source)
            drawn.append(Drawn(f"blur_{source}", svg, caption))
    return drawn


def _training(material: Material) -> list[Drawn]:
    from facerts.report import figures

    if not any(run.series("train", "v_p50")[0] for run in material.runs):
        return []
    label = "uncertainty v of the training faces"
    caption = (
        "RTS's uncertainty v of the training faces over the epochs: median, and the band from 5 to 95 %."
    )
    return [Drawn("uncertainty", figures.percentile_bands(material.subjects, "v", label), caption)]


_FIGURES: dict[str, Callable[[Material], list[Drawn]]] = {
    "ood": _scores,
    "embedding": _reject,
    "corruptions": _blur,
    "training": _training,
}
