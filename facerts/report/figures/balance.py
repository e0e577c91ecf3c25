"""Verification against the rejection of non-faces (the RTS paper's Fig. 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from facerts.evaluation.labeled import Measured
from facerts.report.figures.style import color, new_figure, rate_axes, svg

# Where a label may stand beside its point, in points of type: the first place that overlaps least.
_PLACES = ((6, 6), (6, -14), (-6, 6), (-6, -14), (0, 16), (0, -24), (12, -4), (-12, -4))


@dataclass(frozen=True)
class Point:
    """A training run: AUROC of faces against non-faces, and accuracy, both shares."""

    auroc: Measured
    accuracy: Measured


def balance(methods: Sequence[tuple[str, Sequence[Point]]], score: str, sets: Sequence[str]) -> str:
    """A point for each run, labeled by its method; bars are 95 % intervals.

    Args:
        methods: label and runs of each; the color is by the place in this order, and no runs draw nothing.
        score: that separates faces from non-faces.
        sets: benchmarks that the accuracy is the mean of.
    """
    figure, axes = new_figure()
    labels = []
    for number, (label, points) in enumerate(methods):
        for point in points:
            across, up = (
                [[one.value - one.low], [one.high - one.value]] for one in (point.auroc, point.accuracy)
            )
            axes.errorbar(
                point.auroc.value,
                point.accuracy.value,
                up,
                across,
                fmt="o",
                color=color(number),
                elinewidth=1,
                capsize=2,
                alpha=1.0 if len(points) == 1 else 0.65,
                clip_on=False,
            )
        if points:
            x, y = (fmean(values) for values in zip(*map(_values, points), strict=True))
            labels.append((label, (x, y), color(number)))
    axes.margins(0.15)
    axes.set_title(f"mean of {', '.join(sets)}" if len(sets) > 1 else sets[0], loc="left", fontsize=10)
    axes.set(xlabel=f"AUROC of {score}, faces against non-faces", ylabel="accuracy")
    rate_axes(axes, "xy")
    _label(figure, axes, labels)
    return svg(figure)


def _label(figure: Figure, axes: Axes, labels: Sequence[tuple[str, tuple[float, float], str]]) -> None:
    """Write each label where it hides the least of the points and of the labels before it."""
    figure.draw_without_rendering()
    taken = []
    for _, center, _ in labels:
        x, y = axes.transData.transform(center)
        taken.append(Bbox.from_bounds(x - 5, y - 5, 10, 10))
    for label, center, ink in labels:
        written = []
        for place in _PLACES:
            align = {1: "left", 0: "center", -1: "right"}[int(np.sign(place[0]))]
            text = axes.annotate(
                label, center, place, textcoords="offset points", color=ink, fontsize=10, ha=align
            )
            box = text.get_window_extent()
            text.remove()
            hidden = sum(_overlap(box, other) for other in taken)
            outside = box.width * box.height - _overlap(box, axes.get_window_extent())
            written.append((hidden + outside, place, align, box))
        _, place, align, box = min(written, key=lambda one: one[0])
        axes.annotate(label, center, place, textcoords="offset points", color=ink, fontsize=10, ha=align)
        taken.append(box)


def _values(point: Point) -> tuple[float, float]:
    return point.auroc.value, point.accuracy.value


def _overlap(one: Bbox, other: Bbox) -> float:
    shared = Bbox.intersection(one, other)
    return 0.0 if shared is None else float(shared.width * shared.height)
