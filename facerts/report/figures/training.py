"""Curves of training runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from facerts.report.figures.style import colour, legend, new_figure, svg
from facerts.report.subject import Subject


def training_curves(subjects: Sequence[Subject], kind: str, field: str, label: str) -> str:
    """A logged number over the epochs, a line for each run."""
    figure, axes = new_figure()
    for number, subject in enumerate(subjects):
        for name in _names(subject, kind, field):
            epochs, values = subject.series(kind, field, name)
            text = subject.label if name is None else f"{subject.label}, {name}"
            style = "-" if name is None else ("-", "--", ":")[_names(subject, kind, field).index(name) % 3]
            marker = "o" if len(values) < 30 else None
            axes.plot(
                epochs,
                values,
                style,
                color=colour(number),
                label=text,
                marker=marker,
                markersize=3,
                linewidth=1.3,
            )
    axes.set(xlabel="epoch", ylabel=label)
    legend(axes)
    return svg(figure)


def percentile_band(subjects: Sequence[Subject], field: str, label: str) -> str:
    """Median of a logged number, and the band from its 5th to its 95th percentile, over the epochs."""
    figure, axes = new_figure()
    for number, subject in enumerate(subjects):
        epochs, middle = subject.series("train", f"{field}_p50")
        if not epochs:
            continue
        low, high = (subject.series("train", f"{field}_{percent}")[1] for percent in ("p5", "p95"))
        axes.fill_between(epochs, low, high, color=colour(number), alpha=0.25, linewidth=0)
        axes.plot(epochs, middle, color=colour(number), label=f"{subject.label}: median, 5 to 95 %")
    axes.set(xlabel="epoch", ylabel=label)
    legend(axes)
    return svg(figure)


def _names(subject: Subject, kind: str, field: str) -> list[Any]:
    """The benchmarks that a field was logged for; one None where it is not of a benchmark."""
    lines = [line for line in subject.log if line["kind"] == kind and field in line]
    return list(dict.fromkeys(line.get("name") for line in lines))
