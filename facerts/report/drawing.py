"""How figures look and what they are made of: lines with bands, points with bars, and histograms.

A figure is an SVG that takes its text color from the page, so that light and dark pages can show it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike

from facerts.io.console import printable

# Distinct for most eyes, on white and on black.
COLORS = (
    *("#3d85c6", "#e07b39", "#2f9e73", "#c763a8", "#b59b2b", "#7d74d6"),
    *("#c94f4f", "#2aa5b0", "#8f6a4b", "#79a83b", "#6b8299", "#d98aa5"),
)
MIN_BINS = 8
REFERENCE = "#8a8a8a"
LINES = ("-", "--", ":", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
SIZE = (5.6, 3.7)
# A legend of more labels than these stands below its figure; characters in an inch of it, and those that a line takes.
INSIDE, CHARACTERS, LINE = 3, 13, 6
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


def new_figure(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = SIZE, *, share: bool = False
) -> tuple[Figure, Any]:
    """A figure, and its axes: an array of them where there are several, with one scale if they ``share`` it."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        return figure, figure.subplots(rows, columns, sharex=share, sharey=share)


def panels(number: int, *, height: float = 2.4, share: bool = False, columns: int = 2) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels in rows, on scales of their own or on one.

    Two columns are as wide as all other figures, three half as wide again.
    """
    columns = min(columns, number)
    rows = -(-number // columns)
    size = SIZE if number == 1 else (SIZE[0] * max(columns, 2) / 2, height * rows + 0.5)
    figure, grid = new_figure(rows, columns, size=size, share=share)
    every: list[Axes] = np.atleast_1d(grid).ravel().tolist()
    for axes in every if number > 1 else ():
        axes.locator_params(axis="x", nbins=4)
    for axes in every[number:]:
        axes.set_visible(False)
    return figure, every[:number]


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


def legend(axes: Axes, place: Any = "best", **options: Any) -> None:
    """A legend, where something has a label; one that would hide curves stands below the figure."""
    labels = axes.get_legend_handles_labels()[1]
    if place == "best" and len(labels) > INSIDE:
        legend_below(axes.figure, axes)
    elif labels:
        axes.legend(loc=place, frameon=False, fontsize=9, labelcolor=INK, **options)


def legend_below(figure: Any, axes: Axes, columns: int = 3) -> None:
    """One legend for all panels of a figure, under them, in as many columns as their labels leave room for."""
    lines, labels = axes.get_legend_handles_labels()
    room = int(figure.get_figwidth() * CHARACTERS / (max(map(len, labels), default=0) + LINE))
    columns = max(1, min(columns, room))
    figure.legend(
        lines,
        labels,
        loc="outside lower center",
        ncols=min(columns, len(labels)),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )


def title(axes: Axes, text: str) -> None:
    """Write what a panel shows above it."""
    axes.set_title(text, loc="left", fontsize=10, color=INK)


def draw_line(axes: Axes, x: ArrayLike, y: ArrayLike, band: Any = None, *, alpha: float = 0.15, **look: Any) -> None:
    """Draw a line and the band around it, from its lower to its upper ends; of one point, bars."""
    if band is not None and np.size(x) == 1:
        draw_points(axes, x, y, y_ends=band, color=look["color"], label=look.get("label"))
        return
    axes.plot(x, y, **look)
    if band is not None:
        axes.fill_between(x, *band, color=look["color"], alpha=alpha, linewidth=0)


def draw_points(axes: Axes, x: ArrayLike, y: ArrayLike, *, x_ends: Any = None, y_ends: Any = None, **look: Any) -> None:
    """Draw points with bars from their lower to their upper ends."""
    x_bars, y_bars = (
        None if ends is None else np.abs(np.reshape(ends, (2, -1)) - np.atleast_1d(middle))
        for ends, middle in ((x_ends, x), (y_ends, y))
    )
    axes.errorbar(x, y, y_bars, x_bars, **{"fmt": "o", "elinewidth": 1, "capsize": 2, **look})


def draw_histogram(axes: Axes, counts: ArrayLike, edges: ArrayLike, total: int = 0, **look: Any) -> None:
    """Draw densities from the counts between edges, as shares of their sum or of a ``total``."""
    shares = np.asarray(counts) / max(total or int(np.sum(counts)), 1)
    axes.stairs(shares / np.diff(edges), edges, **look)


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


def color(number: int) -> str:
    """Of the model or line of that number."""
    return COLORS[number % len(COLORS)]


def line(number: int) -> Any:
    """Style of a line of that number."""
    return LINES[number % len(LINES)]
