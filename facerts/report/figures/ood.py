"""Score distributions of faces and of non-faces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from facerts.report.figures.style import REFERENCE, color, legend, legend_below, panels, svg
from facerts.report.subject import Subject


def score_histograms(subject: Subject, score: str) -> str:
    """Densities of a score for each source of faces and for the other things together (the RTS paper's Fig. 5)."""
    return score_panels([subject], score)


def score_panels(
    subjects: Sequence[Subject], score: str, *, faces: Sequence[str] | None = None, columns: int = 2
) -> str:
    """``score_histograms`` of several models, each with a scale of its own.

    Args:
        subjects: with OOD results.
        score: that all of them have.
        faces: sources of faces to draw; by default all of each model.
        columns: maximum number of panels beside each other.
    """
    figure, grid = panels(len(subjects), columns=columns)
    for axes, subject in zip(grid, subjects, strict=True):
        _histograms(axes, subject, score, faces)
    grid[0].set_ylabel("density")
    if len(grid) == 1:
        legend(grid[0])
    else:
        legend_below(figure, max(grid, key=lambda axes: len(axes.get_legend_handles_labels()[1])), columns=3)
    return svg(figure)


def _histograms(axes: Axes, subject: Subject, score: str, names: Sequence[str] | None = None) -> None:
    section = subject.sections.ood
    assert section is not None  # callers leave out subjects without it
    faces = {name: subject.arrays[f"ood/{name}/{score}"] for name in names or section.faces}
    others = np.concatenate([subject.arrays[f"ood/{name}/{score}"] for name in section.others])
    low, high = np.quantile(np.concatenate([others, *faces.values()]), [0.002, 0.998])
    edges = np.linspace(low, high, 61) if high > low else np.linspace(low - 0.5, low + 0.5, 61)
    _density(axes, others, edges, REFERENCE, ", ".join(section.others), filled=True)
    for number, (name, values) in enumerate(faces.items()):
        _density(axes, values, edges, color(number), name, filled=False)
    axes.set(xlabel=f"{score}, {subject.label}")
    # More numbers would run into each other where they are long, such as 0.0025.
    axes.locator_params(axis="x", nbins=3)


def _density(
    axes: Axes,
    values: NDArray[np.float32],
    edges: NDArray[np.float64],
    ink: str,
    label: str,
    *,
    filled: bool,
) -> None:
    counts, _ = np.histogram(values, edges)
    share = counts / len(values) / np.diff(edges)
    axes.stairs(
        share, edges, fill=filled, color=ink, alpha=0.45 if filled else 1.0, label=label, linewidth=1.6
    )
