"""Figures of evaluations, comparisons and trainings, and how they look: SVG elements for a page.

They take their text color from the page, so that light and dark pages can show them.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from facerts.evaluation.measure import Plot, Series
from facerts.io.console import printable

Values = NDArray[np.floating]
# Bins of a density, and the share that is left out at each end.
BINS, LEFT_OUT = 60, 0.002
# Height of a row with a name, and of what is around the rows, in inches.
ROW, MARGINS = 0.36, 0.95
# Distinct for most eyes, on white and on black.
COLORS = (
    *("#3d85c6", "#e07b39", "#2f9e73", "#c763a8", "#b59b2b", "#7d74d6"),
    *("#c94f4f", "#2aa5b0", "#8f6a4b", "#79a83b", "#6b8299", "#d98aa5"),
)
MIN_BINS = 8
REFERENCE = "#8a8a8a"
LINES = ("-", "--", ":", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
SIZE = (5.6, 3.7)
# A legend of more labels than these stands below its figure, in so many columns at most; characters in an inch of it,
# and those that a line takes.
INSIDE, COLUMNS, CHARACTERS, LINE = 3, 3, 13, 6
# Where a label may stand beside its point, in points of type: the first place that overlaps least.
PLACES = ((6, 6), (6, -14), (-6, 6), (-6, -14), (0, 16), (0, -24), (12, -4), (-12, -4))
# Stands for the page's text color until the SVG is finished.
INK = "#010203"
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "facerts",
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.2,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


class Drawn(NamedTuple):
    """A model's label, and a plot of it with its arrays."""

    model: str
    plot: Plot
    arrays: Mapping[str, NDArray[Any]]


class Look(NamedTuple):
    """Color and line of a series; the width is matplotlib's own where none is given."""

    color: str
    linestyle: Any = "-"
    linewidth: float | None = None


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
                labels.append((item.label, (float(item.x[0]), float(item.y[0])), item.look.color))
        _finish_axes(axes, plot)
        if len(shown) > 1:
            axes.set_title(heading, loc="left", fontsize=10, color=INK)
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


def _figure(plot: Plot, number: int, columns: int) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels in rows, on one scale if they are together.

    Two columns are as wide as all other figures, three half as wide again.
    """
    if plot.rows:
        figure, axes = new_figure(size=(SIZE[0], len(plot.rows) * ROW + MARGINS))
        return figure, [axes]
    columns = min(columns, number)
    rows = -(-number // columns)
    height = 1.7 if columns > 2 else 2.4
    size = SIZE if number == 1 else (SIZE[0] * max(columns, 2) / 2, height * rows + 0.5)
    figure, grid = new_figure(rows, columns, size=size, share=plot.together)
    every: list[Axes] = np.atleast_1d(grid).ravel().tolist()
    for axes in every if number > 1 else ():
        axes.locator_params(axis="x", nbins=4)
    for axes in every[number:]:
        axes.set_visible(False)
    return figure, every[:number]


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
                look = Look(_nth(COLORS, order), _nth(LINES, order // len(COLORS)))
                if several and plot.together and not one.reference:
                    label = f"{model}, {one.label}" if len(colored) > 1 and one.label else model
                    look = Look(_nth(COLORS, number), _nth(LINES, order))
                if one.reference:
                    look = Look(REFERENCE, ":", 1.2)
                if one.dashed:
                    look = look._replace(linestyle="--")
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
    one, x, y, look = item.series, item.x, item.y, item.look
    if one.mark == "steps":
        axes.step(x, y, where="post", label=item.label, **look._asdict())
    elif one.mark == "counts":
        counts, edges = _fewer_bins(y, x)
        _draw_histogram(axes, counts, edges, label=item.label, **look._replace(linewidth=1.2)._asdict())
    elif one.mark == "line" and not (item.ends and len(x) == 1):
        marker, size = ("o", 3.0) if len(x) < 30 and not one.reference else ("", None)
        axes.plot(x, y, label=item.label, marker=marker, markersize=size, **look._asdict())
        if item.ends is not None:
            axes.fill_between(x, *item.ends, color=look.color, alpha=0.15, linewidth=0)
    else:
        # From each point to its lower and upper ends; of a band around a single point, too.
        x_bars, y_bars = (
            None if ends is None else np.abs(np.reshape(ends, (2, -1)) - np.atleast_1d(middle))
            for ends, middle in ((item.x_ends, x), (item.ends, y))
        )
        hollow = one.mark == "hollow points"
        axes.errorbar(
            x,
            y,
            y_bars,
            x_bars,
            fmt="^" if hollow else "o",
            color=look.color,
            markerfacecolor="none" if hollow else look.color,
            markersize=4,
            elinewidth=1,
            capsize=2,
            clip_on=False,
            # Names stand beside their points.
            label=None if one.mark == "name" else item.label,
        )


def _draw_histogram(axes: Axes, counts: Values, edges: Values, total: int = 0, **look: Any) -> None:
    """Draw densities from the counts between edges, as shares of their sum or of a ``total``."""
    axes.stairs(counts / max(total or int(counts.sum()), 1) / np.diff(edges), edges, **look)


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
        gray = item.series.reference
        look = item.look._replace(linestyle="-", linewidth=1.6)._asdict()
        _draw_histogram(
            axes, counts, edges, len(item.x), label=item.label, fill=gray, alpha=0.45 if gray else None, **look
        )


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


def new_figure(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = SIZE, *, share: bool = False
) -> tuple[Figure, Any]:
    """A figure, and its axes: an array of them where there are several, with one scale if they ``share`` it."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        return figure, figure.subplots(rows, columns, sharex=share, sharey=share)


def rate_axes(axes: Axes, which: str = "y") -> None:
    """Let an axis (or "xy") show shares in percent, from 0 (a logarithmic one: from where it begins) to 100%."""
    from matplotlib.ticker import NullFormatter

    for axis in which:
        low, high = getattr(axes, f"get_{axis}lim")()
        ticks = getattr(axes, f"{axis}axis")
        logarithmic = ticks.get_scale() == "log"
        if logarithmic:
            ticks.set_ticks(log_ticks(low, min(high, 1)))
            ticks.set_minor_formatter(NullFormatter())
        getattr(axes, f"set_{axis}lim")(low if logarithmic else max(low, 0), min(high, 1))
        ticks.set_major_formatter(lambda share, _: f"{100 * share:.6f}".rstrip("0").rstrip(".") + "%")


def log_ticks(low: float, high: float) -> list[float]:
    """Three to six numbers to label on a logarithmic axis, far enough from each other however narrow it is."""
    from matplotlib.ticker import MaxNLocator

    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = -(-(last - first) // 6) or 1
    for digits, every in (((1,), step), ((1, 2, 5), 1), ((1, 3), 1)):
        numbers = (float(f"{digit}e{power}") for power in range(last, first - 1, -every) for digit in digits)
        inside = sorted(number for number in numbers if low <= number <= high)
        if 3 <= len(inside) <= 6:
            return inside
    # Less than a decade looks almost linear.
    return [float(tick) for tick in MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, high) if low <= tick <= high]


@contextmanager
def names_as_text(figure: Figure) -> Iterator[None]:
    """Lay out or draw a figure inside this block: dollar signs in names are no formulas."""
    import matplotlib

    for text in figure.findobj(Text):
        text.set_parse_math(False)
    with matplotlib.rc_context(_STYLE), catch_warnings():
        # The viewer chooses the font: whether matplotlib's has a letter does not matter.
        simplefilter("ignore", UserWarning)
        yield


def svg(figure: Figure) -> str:
    """The figure as an SVG element; its ink is ``currentColor``."""
    text = io.StringIO()
    with names_as_text(figure):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn = printable(text.getvalue(), keep="\n")
    return drawn[drawn.index("<svg") :].replace(INK, "currentColor")


def legend(axes: Axes) -> None:
    """A legend, where something has a label; one that would hide curves stands below the figure."""
    labels = axes.get_legend_handles_labels()[1]
    if len(labels) > INSIDE:
        legend_below(axes.figure, axes)
    elif labels:
        axes.legend(frameon=False, fontsize=9, labelcolor=INK)


def legend_below(figure: Any, axes: Axes) -> None:
    """One legend for all panels of a figure, under them, in as many columns as their labels leave room for."""
    lines, labels = axes.get_legend_handles_labels()
    room = int(figure.get_figwidth() * CHARACTERS / (max(map(len, labels), default=0) + LINE))
    columns = min(max(1, min(COLUMNS, room)), len(labels))
    place = "outside lower center"
    figure.legend(lines, labels, loc=place, ncols=columns, frameon=False, fontsize=9, labelcolor=INK)


def draw_labels(figure: Figure, axes: Axes, labels: Sequence[tuple[str, tuple[float, float], str]]) -> None:
    """Write labels of points in their colors, each where it hides the least of the points and labels before it."""
    with names_as_text(figure):
        figure.draw_without_rendering()
        taken = []
        for _, center, _ in labels:
            x, y = axes.transData.transform(center)
            taken.append(Bbox.from_bounds(x - 5, y - 5, 10, 10))
        for label, center, ink in labels:
            look: Any = {"textcoords": "offset points", "color": ink, "fontsize": 10}
            written = []
            for place in PLACES:
                look["ha"] = {1: "left", 0: "center", -1: "right"}[int(np.sign(place[0]))]
                text = axes.annotate(label, center, place, **look)
                box = text.get_window_extent()
                text.remove()
                hidden = sum(_overlap(box, other) for other in taken)
                outside = box.width * box.height - _overlap(box, axes.get_window_extent())
                written.append((hidden + outside, place, look["ha"], box))
            _, place, look["ha"], box = min(written, key=lambda one: one[0])
            axes.annotate(label, center, place, **look)
            taken.append(box)


def _overlap(one: Bbox, other: Bbox) -> float:
    shared = Bbox.intersection(one, other)
    return 0.0 if shared is None else float(shared.width * shared.height)


def bins_of(values: int, most: int) -> int:
    """Bins of a histogram of so many values: few where a bin would hold one or none."""
    return int(np.clip(2 * np.sqrt(values), MIN_BINS, most))


def _nth(looks: Sequence[Any], number: int) -> Any:
    """The look of the model or line of that number."""
    return looks[number % len(looks)]
