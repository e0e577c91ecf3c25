"""Distributions of a score under Gaussian blur (the RTS paper's Fig. 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from facerts.images.corruptions import MAX_BLUR
from facerts.report.figures.style import REFERENCE, color, legend_below, panels, svg

BINS = 30
RADII = (2.0, 3.0, 5.0)


def blur_steps(radii: Sequence[float] = RADII) -> dict[str, str]:
    """Steps of the corruption benchmark by what a legend calls them; radii in pixels of a crop of 112."""
    return {"as they are": "clean", **{f"blur, radius {r:g}": f"blur/{r / MAX_BLUR:g}" for r in radii}}


def blur_panels(values: Mapping[str, Mapping[str, NDArray[np.floating]]], score: str, source: str) -> str:
    """A panel for each model, each with a scale of its own: scores of different methods have no common one.

    Args:
        values: of each model by its label, ``(N,)`` by step, the clean images first.
        score: what it is.
        source: of the faces.
    """
    figure, grid = panels(len(values))
    for number, (axes, (label, of_steps)) in enumerate(zip(grid, values.items(), strict=True)):
        _draw(axes, of_steps)
        axes.set(xlabel=f"{score}, {label}")
        if number == 0:
            axes.set_ylabel(f"density, {source}")
    legend_below(figure, grid[0], columns=4)
    return svg(figure)


def _draw(axes: Axes, values: Mapping[str, NDArray[np.floating]]) -> None:
    """Densities in common bins, which leave out the last half percent at each end."""
    low, high = np.quantile(np.concatenate(list(values.values())), [0.005, 0.995])
    edges = np.linspace(low, high, BINS + 1) if high > low else np.linspace(low - 0.5, low + 0.5, BINS + 1)
    for number, (label, of_step) in enumerate(values.items()):
        counts, _ = np.histogram(of_step, edges)
        density = counts / len(of_step) / np.diff(edges)
        look = (
            {"color": REFERENCE, "fill": True, "alpha": 0.45} if number == 0 else {"color": color(number - 1)}
        )
        axes.stairs(density, edges, label=label, linewidth=1.6, **look)
