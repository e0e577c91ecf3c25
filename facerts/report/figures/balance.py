"""Verification against the rejection of non-faces (the RTS paper's Fig. 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from facerts.evaluation.labeled import Measured
from facerts.report.figures.labels import write_labels
from facerts.report.figures.style import color, new_figure, rate_axes, svg


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
    write_labels(figure, axes, labels)
    return svg(figure)


def _values(point: Point) -> tuple[float, float]:
    return point.auroc.value, point.accuracy.value
