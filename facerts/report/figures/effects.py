"""What settings change: differences from a reference, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from textwrap import fill
from typing import NamedTuple

from facerts.metrics.intervals import Interval, mean_interval
from facerts.report.figures.style import COLORS, INK, REFERENCE, new_figure, svg

PANEL, ROW = 2.3, 0.3
# Characters in a line of a panel's title.
TITLE = 24
# A setting is an arrow if it is this many times as far as the next one, and there are more settings than these few.
FAR, FEW = 4, 3


class Effect(NamedTuple):
    """A difference from the reference, as a share.

    Attributes:
        value: its mean over the training runs.
        interval: its 95% interval; None if there is none.
        runs: the difference of each training run.
    """

    value: float
    interval: Interval | None
    runs: Sequence[float]

    @classmethod
    def of_runs(cls, runs: Sequence[float], interval: Interval | None = None) -> Effect:
        """The mean of training runs with its interval over them; of a single run, with the interval that is given."""
        return cls(fmean(runs), mean_interval(runs) if len(runs) > 1 else interval, runs)


def effects(differences: Mapping[str, Mapping[str, Effect]], reference: str) -> str:
    """A panel for each measure and a line for each setting, as SVG.

    Points are means with their intervals, small points are training runs, and the line at 0 is the reference. The axes
    end where the means and runs do, so that a wide interval does not hide the others. A setting that is far beyond all
    others is an arrow at the edge, with its number.

    Args:
        differences: by setting and measure; every setting has the same measures.
        reference: name of the reference.
    """
    settings = list(differences)
    measures = list(differences[settings[0]])
    size = (1.6 + PANEL * len(measures), 1.1 + ROW * len(settings))
    figure, grid = new_figure(1, len(measures), size=size)
    for axes, measure in zip([grid] if len(measures) == 1 else grid, measures, strict=True):
        axes.axvline(0, color=REFERENCE, linewidth=1)
        column = [differences[setting][measure] for setting in settings]
        reach = 100 * _reach(column)
        for line, effect in enumerate(column):
            value, runs = 100 * effect.value, [100 * run for run in effect.runs]
            if abs(value) > reach:
                edge, side = (reach, "right") if value > 0 else (-reach, "left")
                axes.plot(0.96 * edge, line, ">" if value > 0 else "<", color=COLORS[0])
                axes.text(
                    0.88 * edge,
                    line,
                    f"{value:+.1f}".replace("-", "\N{MINUS SIGN}"),
                    va="center",
                    ha=side,
                    fontsize=9,
                    color=INK,
                )
                continue
            if effect.interval is not None:
                axes.plot(
                    [100 * end for end in effect.interval], [line, line], color=COLORS[0], linewidth=1.4
                )
            axes.plot(value, line, "o", color=COLORS[0])
            if len(runs) > 1:
                axes.plot(runs, [line] * len(runs), "o", color=COLORS[1], markersize=3)
        axes.set(xlim=(-reach, reach), ylim=(len(settings) - 0.5, -0.5), title=fill(measure, TITLE))
        axes.locator_params(axis="x", nbins=4)
        axes.set_yticks(range(len(settings)), settings if axes.get_subplotspec().is_first_col() else [])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
    figure.supxlabel(f"difference from {reference}, in percentage points", fontsize=10, color=INK)
    return svg(figure)


def _reach(column: Sequence[Effect]) -> float:
    """Where the axis of a measure ends: beyond all means and runs, but for those far beyond all others."""
    ends = sorted(max(abs(number) for number in (effect.value, *effect.runs)) for effect in column)
    while len(ends) > FEW and ends[-1] > FAR * ends[-2]:
        ends.pop()
    return 1.6 * ends[-1] or 0.01
