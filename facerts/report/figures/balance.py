"""Verification against the rejection of non-faces (the RTS paper's Fig. 9)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from facerts.evaluation.labeled import Measured
from facerts.report.figures.labels import write_labels
from facerts.report.figures.style import color, new_figure, rate_axes, svg

# A training run: AUROC of faces against non-faces, and accuracy, both shares.
Point = tuple[Measured, Measured]


def balance(methods: Sequence[tuple[str, Sequence[Point]]], score: str, sets: Sequence[str]) -> str:
    """A labeled point for each method.

    Bars are the 95% interval of a single run. Several runs are small points around their mean, whose bars reach from
    the lowest to the highest.

    Args:
        methods: label and runs of each; the color is by the place in this order, and no runs draw nothing.
        score: that separates faces from non-faces.
        sets: benchmarks that the accuracy is the mean of.
    """
    figure, axes = new_figure()
    labels = []
    for number, (label, points) in enumerate(methods):
        if not points:
            continue
        x, y = (_center(numbers) for numbers in zip(*points, strict=True))
        axes.errorbar(
            x.value,
            y.value,
            [[y.value - y.low], [y.high - y.value]],
            [[x.value - x.low], [x.high - x.value]],
            fmt="o",
            color=color(number),
            elinewidth=1,
            capsize=2,
            clip_on=False,
        )
        if len(points) > 1:
            values = [(auroc.value, accuracy.value) for auroc, accuracy in points]
            axes.plot(
                *zip(*values, strict=True), "o", color=color(number), markersize=2.5, alpha=0.6, clip_on=False
            )
        labels.append((label, (x.value, y.value), color(number)))
    axes.margins(0.15)
    axes.set_title(f"mean of {', '.join(sets)}" if len(sets) > 1 else sets[0], loc="left", fontsize=10)
    axes.set(xlabel=f"AUROC of {score}, faces against non-faces", ylabel="accuracy")
    rate_axes(axes, "xy")
    write_labels(figure, axes, labels)
    return svg(figure)


def _center(runs: Sequence[Measured]) -> Measured:
    """A single run's number, or the mean of several from the lowest to the highest."""
    if len(runs) == 1:
        return runs[0]
    values = [run.value for run in runs]
    return Measured(fmean(values), min(values), max(values))
