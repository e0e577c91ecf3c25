"""What training logs say: in words, and in figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from facerts.evaluation.measure import Plot, Series
from facerts.evaluation.method_runs import MethodRuns
from facerts.evaluation.result_folder import Arrays
from facerts.evaluation.saved_result import SavedResult
from facerts.evaluation.wording import joined, percent, rate
from facerts.report.figures import Drawn, draw
from facerts.report.page_elements import Figure

CURVES = {"cross_entropy": "cross-entropy", "kl": "KL divergence (Eq. 6)", "lr": "learning rate"}
VALIDATED = {"accuracy": "verification accuracy", "auroc": "verification AUROC"}
TAR = "tar_at_far_"
# A line's label, its epochs and values, and the lower and the upper ends of its band if it has one.
Line = tuple[str, Sequence[Sequence[float]]]


def trained(run: SavedResult) -> list[str]:
    """What the last validation on each set measured, and how the network compares with its initial weights."""
    last = {line.name: line for line in run.log if line.kind == "validation"}
    said = []
    for name, line in last.items():
        numbers = [f"{label} {percent(line.numbers[key])}" for key, label in VALIDATED.items() if key in line.numbers]
        rates = [float(key.removeprefix(TAR)) for key in line.numbers if key.startswith(TAR)]
        if rates:
            fmr = min(rates, key=lambda each: abs(each - 1e-3))
            numbers.append(f"FNMR {percent(1 - line.numbers[f'{TAR}{fmr:g}'])} at FMR {rate(fmr)}")
        if "area" in line.numbers:
            numbers.append(f"area {line.numbers['area']:.3f} below error versus reject (1 at random, lower is better)")
        if numbers:
            # A network that is only adapted is trained for none.
            after = f"After {line.epoch:.3g} epoch{'' if line.epoch == 1 else 's'} it" if line.epoch else "It"
            said.append(f"{after} reaches {joined(numbers)} on {name}, its validation.")
    return said + [f"It is {line.text}." for line in run.log if line.kind == "verdict"]


def logged_figures(runs: Sequence[SavedResult]) -> Iterator[Figure]:
    """Logged numbers over the epochs, a line for each run and benchmark; those of validation are shares."""
    for kind, fields in (("train", CURVES), ("validation", VALIDATED)):
        for name, label in fields.items():
            lines = [
                (run.label if benchmark is None else f"{run.label}, {benchmark}", run.series(kind, name, benchmark))
                for run in runs
                for benchmark in run.names(kind, name)
            ]
            caption = f"{label[0].upper()}{label[1:]} over the epochs."
            yield from _figure(name, caption, label, lines, shares=kind == "validation")


def uncertainty_figures(methods: Sequence[MethodRuns]) -> Iterator[Figure]:
    """RTS's uncertainty of the training faces, where it was logged."""
    lines = []
    for name, runs in methods:
        for run in runs:
            epochs, middle = run.series("train", "v_p50")
            low, high = (run.series("train", f"v_p{rank}")[1] for rank in (5, 95))
            lines.append((f"{name}: median, 5 to 95%", (epochs, middle, low, high)))
    label = "uncertainty v of the training faces"
    caption = "RTS's uncertainty v of the training faces over the epochs: median, and the band from 5 to 95%."
    yield from _figure("uncertainty", caption, label, lines)


def _figure(name: str, caption: str, label: str, lines: Sequence[Line], *, shares: bool = False) -> Iterator[Figure]:
    """One figure of all lines; what was logged once is no line."""
    arrays: Arrays = {}
    drawn = []
    for number, (title, values) in enumerate(lines):
        if len(values[0]) > 1:
            keys = [f"{number}/{part}" for part in ("x", "y", "low", "high")[: len(values)]]
            arrays |= {key: np.asarray(one, dtype=np.float64) for key, one in zip(keys, values, strict=True)}
            x, y, *ends = keys
            low, high = ends or (None, None)
            drawn.append(Series(label=title, x=[x], y=y, low=low, high=high))
    if drawn:
        plot = Plot(name=name, caption=caption, x="epoch", y=label, panels={"": drawn}, percent="y" if shares else "")
        yield Figure(draw([Drawn("", plot, arrays)]), caption, name)
