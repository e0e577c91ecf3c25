"""Several methods side by side: tables and figures of a comparison, as files and on one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from facerts.errors import DataError, MissingExtraError
from facerts.evaluation.compare import MethodRuns
from facerts.evaluation.compare.ood_tables import ood_auroc
from facerts.evaluation.compare.verification_tables import accuracy_sets, mean_accuracy
from facerts.evaluation.result_folder import naming_folders
from facerts.evaluation.results import Comparison
from facerts.evaluation.results.comparison_result import ComparedMethod
from facerts.report.comparison_tables import differences, side_by_side
from facerts.report.markdown import write_markdown
from facerts.report.page import PAGE_FILE, REPORT_EXTRA, write_page
from facerts.report.page_elements import Figure
from facerts.report.subject import Subject, by_name, read_log, subject_of
from facerts.report.table import rate

# Every method's label and runs.
LabeledRuns = Sequence[tuple[str, Sequence[Subject]]]


class Material(NamedTuple):
    """What figures are drawn from; ``score`` is the image score that they show."""

    methods: Sequence[MethodRuns]
    subjects: LabeledRuns
    comparison: Comparison
    score: str

    @property
    def runs(self) -> list[Subject]:
        """Those of all methods."""
        return [run for _, runs in self.subjects for run in runs]


def write_comparison_report(
    methods: Sequence[MethodRuns],
    subjects: LabeledRuns,
    comparison: Comparison,
    folder: str | Path,
    *,
    title: str = "facerts comparison",
    score: str = "quality",
) -> None:
    """Write ``tables.md``, the figures and ``report.html`` into a folder, which is created if it is missing.

    ``subjects`` are the methods with their training logs, of ``subjects_of``; ``score`` is the image score that the
    figures show, where a method has it. Where matplotlib or Jinja is missing, ``tables.md`` is written before the
    error.
    """
    home = Path(folder)
    introduction = f"Methods: {'; '.join(map(_folders, comparison.methods))}."
    if find_spec("matplotlib") is None or find_spec("jinja2") is None:
        without = [side_by_side(comparison, {}), differences(comparison)]
        write_markdown(home, title, introduction, without)
        raise MissingExtraError(REPORT_EXTRA)
    material = Material(methods, subjects, comparison, score)
    with naming_folders([run.folder for method in methods for run in method.runs]):
        drawn = {topic: draw(material) for topic, draw in _FIGURES.items()}
        sections = [side_by_side(comparison, drawn), differences(comparison)]
        write_markdown(home, title, introduction, sections)
        write_page(material.runs, home / PAGE_FILE, title=title, compared=comparison, first=sections)


def _folders(method: ComparedMethod) -> str:
    return f"{method.label} ({', '.join(run.folder for run in method.runs)})"


def subjects_of(methods: Sequence[MethodRuns], logs: Sequence[str] = ()) -> list[tuple[str, list[Subject]]]:
    """Every method's runs, with their training logs; these, or their runs, are given as ``LABEL=PATH``.

    The second of a label is its second run's. A result folder that has a ``log.jsonl`` needs none.
    """
    paths: dict[str, list[Path]] = {method.label: [] for method in methods}
    for text in logs:
        label, _, where = text.rpartition("=")
        if label not in paths:
            raise DataError(
                f"--log {text}: give it as LABEL=PATH, with the label of a result: {', '.join(paths)}"
            )
        paths[label].append(Path(where))
    subjects = []
    for method in methods:
        given = paths[method.label]
        if len(given) > len(method.runs):
            raise DataError(
                f"{method.label}: {len(given)} logs for {len(method.runs)} results; give one for each"
            )
        runs = [subject_of(run, method.shown(run)) for run in method.runs]
        for number, path in enumerate(given):
            runs[number] = runs[number].with_log(read_log(path))
        subjects.append((method.label, runs))
    return subjects


def _balance(material: Material) -> list[Figure]:
    """Of the methods that have both numbers in all runs."""
    from facerts.report import figures

    sets, score = accuracy_sets(material.methods), material.score
    if not sets:
        return []
    points: list[tuple[str, list[figures.Point]]] = []
    for method in material.methods:
        both = [(ood_auroc(run, score), mean_accuracy(run, sets)) for run in method.runs]
        points.append((method.label, [(x, y) for x, y in both if x is not None and y is not None]))
    if not any(runs for _, runs in points):
        return []
    caption = (
        f"Accuracy ({'mean of ' if len(sets) > 1 else ''}{', '.join(sets)}) against the AUROC of faces and non-faces "
        f"by {score}, with 95% intervals. Up and to the right is better."
    )
    if any(len(runs) > 1 for _, runs in points):
        caption += " Of several runs: small points, and their mean with bars from the lowest to the highest."
    return [Figure(figures.balance(points, score, sets), caption, "balance")]


def _scores(material: Material) -> list[Figure]:
    from facerts.report import figures

    score = material.score
    having = [run for run in material.runs if run.sections.ood is not None and score in run.sections.ood.by]
    drawn = _balance(material)
    if having:
        caption = f"Distributions of {score}: faces as lines, non-faces filled. Each model has its own scale."
        columns = 3 if len(having) > 4 else 2
        drawn.append(Figure(figures.score_panels(having, score, columns=columns), caption, "scores"))
    return drawn


def _reject(material: Material) -> list[Figure]:
    from facerts.report import figures

    drawn = []
    for name, compared in material.comparison.curves.items():
        curves = {(curve.method, curve.score): np.array(curve.fnmr) for curve in compared.by}
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
        drawn.append(Figure(svg, caption, f"reject_{name}"))
    return drawn


def _blur(material: Material) -> list[Figure]:
    from facerts.report import figures

    steps, score = figures.blur_steps(), material.score
    drawn = []
    for source, measured in by_name(material.runs, lambda sections: sections.corruptions).items():
        keys = {label: f"corruptions/{source}/{step}/{score}" for label, step in steps.items()}
        values = {
            run.label: {label: run.arrays[key] for label, key in keys.items()}
            for run in material.runs
            if all(key in run.arrays for key in keys.values())
        }
        if values:
            images = next(section.images for run, section in measured if run.label in values)
            caption = (
                f"{score.capitalize()} of {images:,} faces of {source}, original and with Gaussian blur (radii in "
                "pixels of a crop of 112). Each model has its own scale."
            )
            svg = figures.blur_panels(values, score, source)
            drawn.append(Figure(svg, caption, f"blur_{source}"))
    return drawn


def _training(material: Material) -> list[Figure]:
    from facerts.report import figures

    if not any(run.series("train", "v_p50")[0] for run in material.runs):
        return []
    svg = figures.percentile_bands(material.subjects, "v", "uncertainty v of the training faces")
    caption = "RTS's uncertainty v of the training faces over the epochs: median, and the band from 5 to 95%."
    return [Figure(svg, caption, "uncertainty")]


_FIGURES: dict[str, Callable[[Material], list[Figure]]] = {
    "ood": _scores,
    "embedding": _reject,
    "corruptions": _blur,
    "training": _training,
}
