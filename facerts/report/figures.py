"""Figures as SVG that takes its text colour from the page, so that light and dark pages can show it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray

from facerts.report.subject import Subject

# Distinct for most eyes, on white and on black.
COLOURS = ("#3d85c6", "#e07b39", "#2f9e73", "#c763a8", "#b59b2b", "#7d74d6")
REFERENCE = "#8a8a8a"
# Stands for the page's text colour until the SVG is finished.
_INK = "#010203"
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "facerts",
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.2,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def roc_curves(subjects: Sequence[Subject], benchmark: str) -> str:
    """TAR over FAR, on a logarithmic axis down to one impostor pair."""
    figure, axes = _figure()
    for number, subject in enumerate(subjects):
        prefix = f"verification/{benchmark}/"
        far, tar = subject.arrays[prefix + "roc_far"], subject.arrays[prefix + "roc_tar"]
        # Below one impostor the logarithmic axis has no place.
        least = float(far[far > 0].min())
        axes.step(np.maximum(far, least), tar, where="post", color=_colour(number), label=subject.label)
    axes.set_xscale("log")
    axes.set(xlabel="false accept rate", ylabel="true accept rate", ylim=(None, 1.005))
    _legend(axes, "lower right")
    return _svg(figure)


def reject_curves(subjects: Sequence[Subject], benchmark: str, convention: str) -> str:
    """FNMR over the share rejected, with the best and the random order for reference."""
    figure, axes = _figure()
    curves = [
        (subject, curve)
        for subject in subjects
        for curve in subject.result["reject"][benchmark]
        if curve["convention"] == convention
    ]
    for number, (subject, curve) in enumerate(curves):
        percent = 100 * np.array(curve["rejected"])
        axes.plot(percent, curve["fnmr"], color=_colour(number), label=f"{subject.label}, by {curve['by']}")
    seen: set[str] = set()
    for subject, curve in curves:
        if subject.label in seen:
            continue
        seen.add(subject.label)
        first = len(seen) == 1
        percent = 100 * np.array(curve["rejected"])
        axes.plot(
            percent,
            curve["oracle_fnmr"],
            color=REFERENCE,
            linestyle=":",
            label="best possible" if first else None,
        )
        axes.axhline(
            curve["fnmr"][0],
            color=REFERENCE,
            linestyle="--",
            linewidth=1,
            label="at random" if first else None,
        )
    fmr = curves[0][1]["fmr"]
    axes.set(xlabel="pairs rejected (%)", ylabel=f"FNMR at FMR {fmr:g}", xlim=(0, 95), ylim=(0, None))
    _legend(axes, "best")
    return _svg(figure)


def score_histograms(subject: Subject, score: str) -> str:
    """Densities of a score for each source of faces and for the other things together (the RTS paper's Fig. 5)."""
    section = subject.result["ood"]
    figure, axes = _figure()
    faces = {name: subject.arrays[f"ood/{name}/{score}"] for name in section["in"]}
    others = np.concatenate([subject.arrays[f"ood/{name}/{score}"] for name in section["out"]])
    low, high = np.quantile(np.concatenate([others, *faces.values()]), [0.002, 0.998])
    edges = np.linspace(low, high, 61) if high > low else np.linspace(low - 0.5, low + 0.5, 61)
    _density(axes, others, edges, REFERENCE, ", ".join(section["out"]), filled=True)
    for number, (name, values) in enumerate(faces.items()):
        _density(axes, values, edges, _colour(number), name, filled=False)
    axes.set(xlabel=f"{score}, {subject.label}", ylabel="density")
    _legend(axes, "best")
    return _svg(figure)


def training_curves(subjects: Sequence[Subject], kind: str, field: str, label: str) -> str:
    """A logged number over the epochs, a line for each run."""
    figure, axes = _figure()
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
                color=_colour(number),
                label=text,
                marker=marker,
                markersize=3,
                linewidth=1.3,
            )
    axes.set(xlabel="epoch", ylabel=label)
    _legend(axes, "best")
    return _svg(figure)


def percentile_band(subjects: Sequence[Subject], field: str, label: str) -> str:
    """Median of a logged number, and the band from its 5th to its 95th percentile, over the epochs."""
    figure, axes = _figure()
    for number, subject in enumerate(subjects):
        epochs, middle = subject.series("train", f"{field}_p50")
        if not epochs:
            continue
        low, high = (subject.series("train", f"{field}_{percent}")[1] for percent in ("p5", "p95"))
        axes.fill_between(epochs, low, high, color=_colour(number), alpha=0.25, linewidth=0)
        axes.plot(epochs, middle, color=_colour(number), label=f"{subject.label}: median, 5 to 95 %")
    axes.set(xlabel="epoch", ylabel=label)
    _legend(axes, "best")
    return _svg(figure)


def _names(subject: Subject, kind: str, field: str) -> list[Any]:
    """The benchmarks that a field was logged for; one None where it is not of a benchmark."""
    lines = [line for line in subject.log if line["kind"] == kind and field in line]
    return list(dict.fromkeys(line.get("name") for line in lines))


def _density(
    axes: Axes,
    values: NDArray[np.float32],
    edges: NDArray[np.float64],
    colour: str,
    label: str,
    *,
    filled: bool,
) -> None:
    counts, _ = np.histogram(values, edges)
    share = counts / len(values) / np.diff(edges)
    axes.stairs(
        share, edges, fill=filled, color=colour, alpha=0.45 if filled else 1.0, label=label, linewidth=1.6
    )


def _figure() -> tuple[Figure, Axes]:
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        FigureCanvasSVG(figure)
        return figure, figure.add_subplot()


def _legend(axes: Axes, place: Any) -> None:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc=place, frameon=False, fontsize=9, labelcolor=_INK)


def _svg(figure: Figure) -> str:
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :].replace(_INK, "currentColor")


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
