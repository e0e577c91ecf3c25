"""Several methods side by side: tables and figures of a comparison, as files and on one page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import MissingExtraError
from facerts.evaluation.comparison import ComparedMethod, Comparison, accuracy_of, accuracy_sets
from facerts.evaluation.measure import Evaluation, Measure, Plot, Series
from facerts.evaluation.method_runs import MethodRuns, runs_of
from facerts.evaluation.result_folder import naming_folders
from facerts.evaluation.saved_result import SavedResult
from facerts.images.changes import MAX_BLUR
from facerts.report.markdown import write_markdown
from facerts.report.page import PAGE_FILE, REPORT_EXTRA, write_page
from facerts.report.page_elements import Figure, PagePart, PageSection
from facerts.report.table import measure_tables

# Radii of blur in pixels of a crop of 112.
RADII = (2.0, 3.0, 5.0)


def write_comparison_report(
    methods: Sequence[MethodRuns],
    comparison: Comparison,
    arrays: Mapping[str, NDArray[Any]],
    folder: str | Path,
    *,
    title: str = "facerts comparison",
    score: str = "quality",
) -> None:
    """Write ``tables.md``, the figures and ``report.html`` into a folder, which is created if it is missing.

    ``arrays`` are the comparison's; ``score`` is the image score that the figures show, where a method has it. Where
    matplotlib or Jinja is missing, ``tables.md`` is written before the error.
    """
    home = Path(folder)
    introduction = f"Methods: {'; '.join(map(_folders, comparison.methods))}."
    if find_spec("matplotlib") is None or find_spec("jinja2") is None:
        write_markdown(home, title, introduction, [side_by_side(comparison), differences(comparison)])
        raise MissingExtraError(REPORT_EXTRA)
    runs = list(runs_of(methods))
    with naming_folders([run.folder for run in runs]):
        figures = list(_figures(methods, comparison, arrays, score))
        sections = [side_by_side(comparison, figures), differences(comparison)]
        write_markdown(home, title, introduction, sections)
        between = [(one.title, one.findings) for one in comparison.differences if one.findings]
        write_page(runs, home / PAGE_FILE, title=title, between=between, first=sections)


def side_by_side(comparison: Comparison, figures: Sequence[Figure] = ()) -> PageSection:
    """All tables, and the figures."""
    parts = [PagePart(figures=figures, text=comparison.text)]
    parts += [PagePart(one.title, measure_tables([("", one)]), text=one.explained) for one in comparison.sections]
    return PageSection("methods", "Methods side by side", "Methods side by side", parts)


def differences(comparison: Comparison) -> PageSection:
    """Paired differences of every result from the first."""
    reference = comparison.reference.label
    text = (
        f"Each model minus {reference}, in percentage points, on the same pairs and images in every replicate of the "
        "bootstrap: over people where a benchmark names them, over pairs and images otherwise. Bold: the 95% interval "
        "leaves out 0. The p-value p is two-sided and not corrected for the number of comparisons; another training "
        "seed may differ by more."
    )
    title = f"Differences from {reference}"
    parts = [PagePart(text=text, notes=comparison.notes)]
    parts += [PagePart(one.title, measure_tables([("", one)])) for one in comparison.differences]
    return PageSection("differences", "Differences", title, parts)


def _folders(method: ComparedMethod) -> str:
    return f"{method.label} ({', '.join(run.folder for run in method.runs)})"


def _figures(
    methods: Sequence[MethodRuns],
    comparison: Comparison,
    arrays: Mapping[str, NDArray[Any]],
    score: str,
) -> Iterator[Figure]:
    """Both uses of each method, its scores, how qualities reject on one embedding, blur, and training."""
    from facerts.report.figures import Drawn, draw
    from facerts.report.training_log import uncertainty_figures

    runs = list(runs_of(methods))
    figures = [[Drawn("", plot, of_plot)] for plot, of_plot in _balance(methods, score)]
    separated = [
        Drawn(run.label, plot.model_copy(update={"name": "scores"}), run.arrays_of(f"{kind}/{name}/"))
        for run in runs
        for kind, name, section in run.sections()
        for plot in section.plots
        if kind == "ood" and plot.name == score
    ]
    figures += [separated] if separated else []
    plots = [plot for one in comparison.sections for plot in one.plots if any(plot.panels.values())]
    figures += [[Drawn("", plot, arrays)] for plot in plots]
    figures += [
        [Drawn(label, plot, of_model) for label, of_model in of_models] for plot, of_models in _blur(runs, score)
    ]
    for drawn in figures:
        if image := draw(drawn, columns=3 if len(drawn) > 4 else 2):
            yield Figure(image, drawn[0].plot.caption, drawn[0].plot.name)
    yield from uncertainty_figures(methods)


def _balance(methods: Sequence[MethodRuns], score: str) -> Iterator[tuple[Plot, dict[str, NDArray[Any]]]]:
    """A named point for each method: verification against the rejection of non-faces (the RTS paper's Fig. 9).

    Bars are the 95% interval of a single run. Several runs are small points around their mean, whose bars reach from
    the lowest to the highest. Methods that lack either number in a run are left out.
    """
    sets = accuracy_sets(methods)
    arrays: dict[str, NDArray[Any]] = {}
    series = []
    for method in methods:
        both = [
            method.mean(lambda run: _auroc(run.of_kind("ood").values(), score)),
            method.mean(lambda run: accuracy_of(run, sets)) if sets else None,
        ]
        if any(one is None for one in both):
            continue
        one = Series(label=method.label, x=[f"{method.label}/x"], y=f"{method.label}/y", mark="name")
        for axis, measure in zip("xy", both, strict=True):
            if measure is None or measure.value is None:
                continue
            arrays[f"{method.label}/{axis}"] = np.array([measure.value])
            ends = measure.range or measure.ci95
            if ends is not None:
                keys = [f"{method.label}/{axis}{end}" for end in ("_low", "_high")]
                arrays |= {key: np.array([end]) for key, end in zip(keys, ends, strict=True)}
                names = ("x_low", "x_high") if axis == "x" else ("low", "high")
                one = one.model_copy(update=dict(zip(names, keys, strict=True)))
        series.append(one)
    if series:
        mean = "mean of " if len(sets) > 1 else ""
        yield (
            Plot(
                name="balance",
                caption=f"Accuracy ({mean}{', '.join(sets)}) against the AUROC of faces and non-faces by {score}, with "
                "95% intervals; of several runs the mean, with bars from the lowest to the highest. Up and right is "
                "better.",
                x=f"AUROC of {score}, faces against non-faces",
                y="accuracy",
                panels={"": series},
                percent="xy",
            ),
            arrays,
        )


def _auroc(sections: Sequence[Evaluation] | Any, score: str) -> Measure | None:
    return next((section.find("AUROC", score=score) for section in sections), None)


def _blur(runs: Sequence[SavedResult], score: str) -> list[tuple[Plot, list[tuple[str, Mapping[str, NDArray[Any]]]]]]:
    """Densities of a score under Gaussian blur, a panel for each model (the RTS paper's Fig. 7)."""
    steps = {"clean": f"clean/{score}"}
    steps |= {f"blur, radius {r:g}": f"blur/{r / MAX_BLUR:g}/{score}" for r in RADII}
    sources: dict[str, list[tuple[str, Mapping[str, NDArray[Any]]]]] = {}
    for run in runs:
        for kind, name, _ in run.sections():
            arrays = run.arrays_of(f"{kind}/{name}/")
            if kind == "corruptions" and all(key in arrays for key in steps.values()):
                sources.setdefault(name, []).append((run.label, arrays))
    return [
        (
            Plot(
                name=f"blur_{name}",
                caption=f"{score.capitalize()} of faces of {name}, original and with Gaussian blur (radii in pixels of "
                "a crop of 112). Each model has its own scale.",
                x=score,
                y=f"density, {name}",
                panels={"": [Series(label=label, x=[key], reference=label == "clean") for label, key in steps.items()]},
                together=False,
            ),
            of_models,
        )
        for name, of_models in sources.items()
    ]
