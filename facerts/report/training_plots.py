"""Figures of training logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from facerts.evaluation.measure import Plot, Series
from facerts.evaluation.result_folder import Arrays
from facerts.evaluation.wording import percent
from facerts.report.figures import Drawn, draw
from facerts.report.page_elements import Figure
from facerts.report.subject import Subject

CURVES = {"cross_entropy": "cross-entropy", "kl": "KL divergence (Eq. 6)", "lr": "learning rate"}
VALIDATED = {"accuracy": "verification accuracy", "auroc": "verification AUROC"}
# Every method's label and runs.
LabeledRuns = Sequence[tuple[str, Sequence[Subject]]]


@dataclass
class LoggedPlot:
    """A figure of a log; what was logged once is said in words."""

    name: str
    caption: str
    x: str
    y: str
    shares: bool = False
    arrays: Arrays = field(default_factory=dict)
    panels: dict[str, list[Series]] = field(default_factory=dict)
    facts: list[tuple[str, str]] = field(default_factory=list)
    curves: bool = False

    def add(self, panel: str, label: str, x: Sequence[float], y: Sequence[float], *ends: Sequence[float]) -> None:
        """Add a line, with the lower and upper ends of its band."""
        key = f"{panel}/{len(self.arrays)}"
        parts = dict(zip(("x", "y", "low", "high"), (x, y, *ends), strict=False))
        self.arrays |= {f"{key}/{part}": np.asarray(values, dtype=np.float64) for part, values in parts.items()}
        series = Series(label=label, x=[f"{key}/x"], y=f"{key}/y")
        if ends:
            series.low, series.high = f"{key}/low", f"{key}/high"
        self.panels.setdefault(panel, []).append(series)
        self.curves = self.curves or len(x) > 1

    def figure(self) -> Figure:
        plot = Plot(
            name=self.name,
            caption=self.caption,
            x=self.x,
            y=self.y,
            panels=self.panels,
            percent="y" if self.shares else "",
            together=False,
        )
        return Figure(draw([Drawn("", plot, self.arrays)]), self.caption, self.name)


def logged_plots(runs: Sequence[Subject]) -> Iterator[LoggedPlot]:
    """Logged numbers over the epochs, a line for each run and benchmark; those of validation are shares."""
    for kind, fields in (("train", CURVES), ("validation", VALIDATED)):
        for name, label in fields.items():
            caption = f"{label[0].upper()}{label[1:]} over the epochs."
            plot = LoggedPlot(name, caption, "epoch", label, shares=kind == "validation")
            for run in runs:
                for benchmark in run.names(kind, name):
                    epochs, values = run.series(kind, name, benchmark)
                    title = run.label if benchmark is None else f"{run.label}, {benchmark}"
                    plot.add("", title, epochs, values)
                    number = percent(values[0]) if plot.shares else f"{values[0]:.3g}"
                    plot.facts.append((f"{title}: {label}", f"{number} at epoch {epochs[0]:.3g}"))
            if plot.panels:
                yield plot


def uncertainty_plots(methods: LabeledRuns) -> Iterator[LoggedPlot]:
    """RTS's uncertainty of the training faces, where it was logged."""
    label = "uncertainty v of the training faces"
    plot = LoggedPlot(
        "uncertainty",
        "RTS's uncertainty v of the training faces over the epochs: median, and the band from 5 to 95%.",
        "epoch",
        label,
    )
    for name, runs in methods:
        for run in runs:
            epochs, middle = run.series("train", "v_p50")
            if epochs:
                low, high = (run.series("train", f"v_p{rank}")[1] for rank in (5, 95))
                plot.add("", f"{name}: median, 5 to 95%", epochs, middle, low, high)
                fact = f"median {middle[0]:.3g}, 5 to 95%: {low[0]:.3g} to {high[0]:.3g}"
                plot.facts.append((f"{name}: {label}", fact))
    if plot.panels:
        yield plot
