"""Score distributions: faces against non-faces, and clean against blurred faces (the RTS paper's Figs. 5 and 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from facerts.images.corruptions import MAX_BLUR
from facerts.report.figures.style import REFERENCE, bins_of, color, finish_panels, panels
from facerts.report.subject import Subject

RADII = (2.0, 3.0, 5.0)


def score_panels(subjects: Sequence[Subject], score: str, *, columns: int = 2) -> str:
    """Densities of a score for each source of faces and for the non-faces together, a panel and scale for each model.

    Args:
        subjects: with OOD results.
        score: that all of them have.
        columns: maximum number of panels beside each other.
    """
    figure, grid = panels(len(subjects), columns=columns)
    for axes, subject in zip(grid, subjects, strict=True):
        section = subject.sections.ood
        assert section is not None  # callers leave out subjects without it
        others = np.concatenate([subject.arrays[f"ood/{name}/{score}"] for name in section.others])
        faces = {name: subject.arrays[f"ood/{name}/{score}"] for name in section.faces}
        _densities(axes, {", ".join(section.others): others, **faces}, bins=60, left_out=0.002)
        axes.set(xlabel=f"{score}, {subject.label}")
        # More numbers would run into each other where they are long, such as 0.0025.
        axes.locator_params(axis="x", nbins=3)
    grid[0].set_ylabel("density")
    return finish_panels(figure, grid)


def blur_steps() -> dict[str, str]:
    """Steps of the corruption benchmark by what a legend calls them; radii in pixels of a crop of 112."""
    return {"clean": "clean", **{f"blur, radius {r:g}": f"blur/{r / MAX_BLUR:g}" for r in RADII}}


def blur_panels(values: Mapping[str, Mapping[str, NDArray[np.floating]]], score: str, source: str) -> str:
    """Densities of a score under Gaussian blur, a panel and scale for each model.

    Args:
        values: of each model by its label, ``(N,)`` by step, the clean images first.
        score: what it is.
        source: of the faces.
    """
    figure, grid = panels(len(values))
    for axes, (label, of_steps) in zip(grid, values.items(), strict=True):
        _densities(axes, of_steps, bins=30, left_out=0.005)
        axes.set(xlabel=f"{score}, {label}")
    grid[0].set_ylabel(f"density, {source}")
    return finish_panels(figure, grid, columns=4)


def _densities(axes: Axes, values: Mapping[str, NDArray[np.floating]], *, bins: int, left_out: float) -> None:
    """Densities in so many common bins, or fewer of few values; the first is filled, for reference.

    The bins leave out a share at each end.
    """
    low, high = np.quantile(np.concatenate(list(values.values())), [left_out, 1 - left_out])
    bins = bins_of(min(map(len, values.values())), bins)
    edges = np.linspace(low, high, bins + 1) if high > low else np.linspace(low - 0.5, low + 0.5, bins + 1)
    for number, (label, scores) in enumerate(values.items()):
        counts, _ = np.histogram(scores, edges)
        density = counts / len(scores) / np.diff(edges)
        first = number == 0
        look = {"color": REFERENCE, "fill": True, "alpha": 0.45} if first else {"color": color(number - 1)}
        axes.stairs(density, edges, label=label, linewidth=1.6, **look)
