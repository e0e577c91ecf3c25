"""Draws the figures of evaluations, comparisons and trainings; all are SVG elements for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from facerts.evaluation.measure import Plot, Series
from facerts.report.drawing import (
    REFERENCE,
    SIZE,
    bins_of,
    color,
    draw_histogram,
    draw_labels,
    draw_line,
    draw_points,
    legend,
    legend_below,
    line,
    new_figure,
    panels,
    rate_axes,
    svg,
    title,
)

Values = NDArray[np.floating]
# Keywords of matplotlib.
Look = dict[str, Any]
# Bins of a density, and the share that is left out at each end.
BINS, LEFT_OUT = 60, 0.002
# Height of a row with a name, and of what is around the rows, in inches.
ROW, MARGINS = 0.36, 0.95


class Drawn(NamedTuple):
    """A model's label, and a plot of it with its arrays."""

    model: str
    plot: Plot
    arrays: Mapping[str, NDArray[Any]]


class _Item(NamedTuple):
    """A series with its values, ``(N,)`` each, and its look."""

    series: Series
    label: str
    x: Values
    y: Values
    ends: tuple[Values, Values] | None
    x_ends: tuple[Values, Values] | None
    look: Look


def draw(drawn: Sequence[Drawn], *, columns: int = 2) -> str:
    """A plot of one model or several; "" if there is nothing to draw.

    Several models share panels, where they have colors and a series a style, or have panels of their own.
    """
    plot, shown = drawn[0].plot, _panels(drawn)
    if not shown:
        return ""
    small = len(shown) > 4
    figure, grid = _figure(plot, len(shown), 3 if small else columns)
    labels = []
    for axes, (heading, items) in zip(grid, shown.items(), strict=True):
        axes.set(xscale="log", yscale="log") if plot.log else None
        _draw_densities(axes, [item for item in items if item.series.y is None])
        for item in items:
            if item.series.y is not None:
                _draw_item(axes, item)
            if item.series.mark == "name":
                labels.append((item.label, (float(item.x[0]), float(item.y[0])), item.look["color"]))
        _finish_axes(axes, plot)
        if len(shown) > 1:
            title(axes, heading)
            # More numbers would run into each other where they are long, such as 0.0025.
            axes.locator_params(axis="x", nbins=3) if not plot.log else None
    grid[0].set_ylabel(plot.y)
    (grid[-1] if plot.together else grid[0]).set_xlabel(plot.x)
    if not plot.together:
        for axes in grid:
            axes.set_xlabel(plot.x)
    if labels:
        draw_labels(figure, grid[0], labels)
    elif len(grid) == 1:
        legend(grid[0])
    else:
        legend_below(figure, max(grid, key=lambda axes: len(axes.get_legend_handles_labels()[1])))
    return svg(figure)


def _figure(plot: Plot, number: int, columns: int) -> tuple[Any, list[Axes]]:
    if plot.rows:
        figure, axes = new_figure(size=(SIZE[0], len(plot.rows) * ROW + MARGINS))
        return figure, [axes]
    return panels(number, height=1.7 if columns > 2 else 2.4, share=plot.together, columns=columns)


def _panels(drawn: Sequence[Drawn]) -> dict[str, list[_Item]]:
    """What is in each panel; nothing for panels without anything to draw."""
    several = len(drawn) > 1
    shown: dict[str, list[_Item]] = {}
    for number, (model, plot, arrays) in enumerate(drawn):
        for heading, every in plot.panels.items():
            apart = several and not plot.together
            panel = ", ".join(filter(None, [heading, model if apart else ""]))
            colored = list(dict.fromkeys(one.label for one in every if not one.reference))
            for one in every:
                if several and (one.alone or (one.reference and plot.together and number)):
                    continue
                order = 0 if one.reference else colored.index(one.label)
                label = one.label
                look: Look = {"color": color(order), "linestyle": line(order // 12)}
                if several and plot.together and not one.reference:
                    label = f"{model}, {one.label}" if len(colored) > 1 and one.label else model
                    look = {"color": color(number), "linestyle": line(order)}
                if one.reference:
                    look = {"color": REFERENCE, "linestyle": ":", "linewidth": 1.2}
                if one.dashed:
                    look["linestyle"] = "--"
                item = _item(plot, one, arrays, label or model, look)
                if item is not None:
                    items = shown.setdefault(panel, [])
                    # Training runs of one name share a color and an entry of the legend.
                    known = any(before.label == item.label for before in items)
                    items.append(item._replace(label=f"_{item.label}") if known else item)
    return shown


def _item(plot: Plot, one: Series, arrays: Mapping[str, NDArray[Any]], label: str, look: Look) -> _Item | None:
    """A series with its arrays; None where a model lacks them or a logarithmic axis has too few points."""
    if not all(key in arrays for key in (*one.x, *filter(None, [one.y]))):
        return None
    x = np.concatenate([np.asarray(arrays[key], dtype=np.float64) for key in one.x])
    if one.where is not None:
        flags = np.asarray(arrays[one.where.lstrip("~")], dtype=bool)
        x = x[flags != one.where.startswith("~")]
    if one.y is None or one.mark == "counts":
        return _Item(one, label, x, np.empty(0) if one.y is None else arrays[one.y], None, None, look)
    y = np.asarray(arrays[one.y], dtype=np.float64)
    inside = np.isfinite(y)
    if plot.log:
        inside &= (x > 0) & (y > 0)
    if plot.x_limits is not None:
        inside &= x <= plot.x_limits[1] + 1e-9
    if plot.log and inside.sum() < 2:
        return None
    ends, x_ends = (
        None if low is None or high is None else (arrays[low][inside], arrays[high][inside])
        for low, high in ((one.low, one.high), (one.x_low, one.x_high))
    )
    return _Item(one, label, x[inside], y[inside], ends, x_ends, look)


def _draw_item(axes: Axes, item: _Item) -> None:
    one, look, x, y = item.series, item.look, item.x, item.y
    if one.mark == "steps":
        axes.step(x, y, where="post", label=item.label, **look)
    elif one.mark == "counts":
        counts, edges = _fewer_bins(y, x)
        look = {"color": look["color"], "linestyle": look["linestyle"], "linewidth": 1.2}
        draw_histogram(axes, counts, edges, label=item.label, **look)
    elif one.mark == "line":
        few: Look = {"marker": "o", "markersize": 3} if len(x) < 30 and not one.reference else {}
        draw_line(axes, x, y, item.ends, label=item.label, **few, **look)
    else:
        hollow = {"fmt": "^", "markerfacecolor": "none"} if one.mark == "hollow points" else {}
        look = {"color": look["color"], "clip_on": False, "markersize": 4, **hollow}
        # Names stand beside their points.
        label = None if one.mark == "name" else item.label
        draw_points(axes, x, y, x_ends=item.x_ends, y_ends=item.ends, label=label, **look)


def _draw_densities(axes: Axes, items: Sequence[_Item]) -> None:
    """Densities in common bins, fewer of few values; gray ones are filled."""
    items = [item for item in items if len(item.x)]
    if not items:
        return
    low, high = np.quantile(np.concatenate([item.x for item in items]), [LEFT_OUT, 1 - LEFT_OUT])
    low, high = (low, high) if high > low else (low - 0.5, low + 0.5)
    edges = np.linspace(low, high, bins_of(min(len(item.x) for item in items), BINS) + 1)
    for item in items:
        counts, _ = np.histogram(item.x, edges)
        look: Look = {"color": item.look["color"], "linewidth": 1.6}
        if item.series.reference:
            look |= {"fill": True, "alpha": 0.45}
        draw_histogram(axes, counts, edges, len(item.x), label=item.label, **look)


def _fewer_bins(counts: Values, edges: Values) -> tuple[Values, Values]:
    """A stored histogram with bins joined, if it is of few pairs."""
    wide = bins_of(int(counts.sum()), len(counts))
    together = next(size for size in range(max(len(counts) // wide, 1), 0, -1) if len(counts) % size == 0)
    return counts.reshape(-1, together).sum(axis=1), edges[::together]


def _finish_axes(axes: Axes, plot: Plot) -> None:
    if plot.x_limits is not None:
        axes.set_xlim(*plot.x_limits)
    if plot.y_limits is not None:
        axes.set_ylim(*plot.y_limits)
    elif any(one.mark == "name" for series in plot.panels.values() for one in series):
        axes.margins(0.15)
    elif "y" in plot.percent and not plot.log:
        axes.set_ylim(0, None)
    if plot.rows:
        axes.set_yticks(range(len(plot.rows)), plot.rows)
        axes.set_ylim(len(plot.rows) - 0.5, -0.5)
    rate_axes(axes, plot.percent)
