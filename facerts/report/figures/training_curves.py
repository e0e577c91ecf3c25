"""Curves of training runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from facerts.report.figures.style import INK, color, finish_panels, legend, new_figure, panels, rate_axes, svg
from facerts.report.subject import Subject


def training_curves(subjects: Sequence[Subject], kind: str, field: str, label: str) -> str:
    """A logged number over the epochs, a line for each run; those of validation are shares."""
    figure, axes = new_figure()
    for number, subject in enumerate(subjects):
        names = subject.names(kind, field)
        for name in names:
            epochs, values = subject.series(kind, field, name)
            text = subject.label if name is None else f"{subject.label}, {name}"
            style = "-" if name is None else ("-", "--", ":")[names.index(name) % 3]
            marker = "o" if len(values) < 30 else None
            axes.plot(
                epochs,
                values,
                style,
                color=color(number),
                label=text,
                marker=marker,
                markersize=3,
                linewidth=1.3,
            )
    axes.set(xlabel="epoch", ylabel=label)
    if kind == "validation":
        rate_axes(axes)
    legend(axes)
    return svg(figure)


def percentile_bands(methods: Sequence[tuple[str, Sequence[Subject]]], field: str, label: str) -> str:
    """Median and band from the 5th to the 95th percentile of a logged number; runs of a method share a color."""
    figure, axes = new_figure()
    for number, (name, runs) in enumerate(methods):
        text: str | None = f"{name}: median, 5 to 95%"
        for subject in runs:
            epochs, middle = subject.series("train", f"{field}_p50")
            if not epochs:
                continue
            low, high = (subject.series("train", f"{field}_{percent}")[1] for percent in ("p5", "p95"))
            _band(axes, epochs, (low, middle, high), color(number), text, alpha=0.25 / len(runs))
            text = None
    axes.set(xlabel="epoch", ylabel=label)
    legend(axes)
    return svg(figure)


def quality_panels(methods: Mapping[str, Mapping[str, Sequence[NDArray[np.floating]]]], label: str) -> str:
    """A score of the same faces, clean and degraded, over training; a panel for each method (the RTS paper's Fig. 4).

    Args:
        methods: by method and set of faces, ``(4, S)`` of each run: training steps, and the 5th, 50th and 95th
            percentile of the score at each. Runs share a color; the medians of several are thin. The axis leaves out
            the last percents of the bands' values at both ends: early in training, a score can be off by powers of ten.
        label: of the score.
    """
    figure, grid = panels(len(methods))
    for axes, (method, sets) in zip(grid, methods.items(), strict=True):
        for number, (name, runs) in enumerate(sets.items()):
            text: str | None = name
            for steps, *percentiles in runs:
                alpha, width = 0.2 / len(runs), 1.8 if len(runs) == 1 else 1.0
                _band(axes, steps, percentiles, color(number), text, alpha=alpha, linewidth=width)
                text = None
        ends = np.concatenate([run[[1, 3]].ravel() for runs in sets.values() for run in runs])
        low, high = np.quantile(ends, [0.03, 0.97])
        space = 0.05 * (high - low) or 0.5
        axes.set(xlabel="training step", xlim=(0, None), ylim=(low - space, high + space))
        axes.set_title(method, loc="left", fontsize=10, color=INK)
    grid[0].set_ylabel(label)
    return finish_panels(figure, grid)


def _band(
    axes: Axes,
    steps: Sequence[float],
    percentiles: Sequence[Any],
    ink: str,
    label: str | None,
    *,
    alpha: float,
    **look: Any,
) -> None:
    low, middle, high = (np.asarray(values) for values in percentiles)
    if len(steps) == 1:
        axes.errorbar(
            steps, middle, [middle - low, high - middle], fmt="o", color=ink, label=label, elinewidth=1
        )
        return
    axes.fill_between(steps, low, high, color=ink, alpha=alpha, linewidth=0)
    axes.plot(steps, middle, color=ink, label=label, **look)
