"""Error versus reject, and FNMR by quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.evaluation.results.reject_result import PairSet
from facerts.report.figures.style import (
    INK,
    color,
    finish_panels,
    legend,
    line,
    new_figure,
    panels,
    rate_axes,
    reject_references,
    svg,
)
from facerts.report.numbers import rate
from facerts.report.subject import Subject

# With several models, baselines would hide what is compared.
OWN_SCORES = ("quality", "norm")

MOST_LEFT_OUT = 0.95
# A curve ends where fewer genuine pairs remain: one more or less of them would move it by more than 10%.
REMAINING = 10


def drawn_to(genuine: int) -> float:
    """The share of so many genuine pairs up to which a curve is drawn."""
    return min(MOST_LEFT_OUT, max(1 - REMAINING / genuine, 0.2))


def reject_curves(subjects: Sequence[Subject], benchmark: str, pairs: PairSet = "benchmark") -> str:
    """FNMR over the share rejected, with the best and the random order for reference.

    Lines of one model are distinguished by their style, models by their color; alone, a model's scores have colors of
    their own. The band is the 95% interval of each model's first score.
    """
    figure, axes = new_figure()
    alone = len(subjects) == 1
    for number, subject in enumerate(subjects):
        curves = [curve for curve in subject.sections.reject[benchmark] if curve.pairs == pairs]
        shown = [curve for curve in curves if alone or curve.by in OWN_SCORES]
        for order, curve in enumerate(shown):
            look = {"color": color(order)} if alone else {"color": color(number), "linestyle": line(order)}
            label = curve.by if alone else f"{subject.label}, {curve.by}"
            end = curve.index_at(drawn_to(curve.genuine)) + 1
            rejected = curve.rejected[:end]
            axes.plot(rejected, curve.fnmr[:end], label=label, **look)
            if order == 0 and curve.fnmr_ci95 is not None:
                low, high = (ends[:end] for ends in curve.fnmr_ci95)
                axes.fill_between(rejected, low, high, color=look["color"], alpha=0.15, linewidth=0)
        if curves:
            end = curves[0].index_at(drawn_to(curves[0].genuine)) + 1
            reject_references(axes, curves[0].rejected[:end], curves[0].oracle_fnmr[:end], label=number == 0)
    measured = [curve for subject in subjects for curve in subject.sections.reject[benchmark]]
    right = max(
        (drawn_to(curve.genuine) for curve in measured if curve.pairs == pairs), default=MOST_LEFT_OUT
    )
    axes.set(
        xlabel="genuine pairs left out",
        ylabel=f"FNMR at FMR {rate(measured[0].fmr)}",
        xlim=(0, right),
        ylim=(0, None),
    )
    rate_axes(axes, "xy")
    legend(axes)
    return svg(figure)


def one_embedding_curves(
    curves_of: Mapping[str, Sequence[tuple[str, NDArray[np.floating]]]],
    rejected: ArrayLike,
    best: ArrayLike,
    label: str,
) -> str:
    """FNMR over the share of genuine pairs rejected by qualities of several methods (the RTS paper's Fig. 8).

    Args:
        curves_of: by title, methods' labels and ``(runs, R)`` curves; of several runs the mean is drawn, and the band
            from the lowest to the highest. Colors go by the place in the list; no runs draw nothing.
        rejected: ``(R,)`` shares.
        best: ``(R,)`` the best curve that there can be.
        label: of the FNMR.
    """
    figure, every = panels(len(curves_of), share=True)
    for axes, (title, methods) in zip(every, curves_of.items(), strict=True):
        for number, (name, curves) in enumerate(methods):
            if not len(curves):
                continue
            axes.plot(rejected, curves.mean(axis=0), color=color(number), label=name)
            if len(curves) > 1:
                ends = curves.min(axis=0), curves.max(axis=0)
                axes.fill_between(rejected, *ends, color=color(number), alpha=0.15, linewidth=0)
        reject_references(axes, rejected, best)
        axes.set(xlabel="genuine pairs left out", xlim=(0, 0.95), ylim=(0, None))
        rate_axes(axes, "xy")
        if len(every) > 1:
            axes.set_title(title, loc="left", fontsize=10, color=INK)
    every[0].set_ylabel(label)
    return finish_panels(figure, every)


def reliability(subjects: Sequence[Subject], benchmark: str) -> str:
    """FNMR of genuine pairs in bins of equal numbers by quality, from the worst to the best."""
    figure, axes = new_figure()
    alone = len(subjects) == 1
    for number, subject in enumerate(subjects):
        by = subject.sections.calibration[benchmark].by
        for order, (name, bins) in enumerate(by.items()):
            if not alone and name not in OWN_SCORES:
                continue
            count = len(bins.fnmr)
            # Beside each other, not upon each other.
            place = (np.arange(count) + 0.5) / count + (order - len(by) / 2) * 0.008
            error = np.abs(np.array([bins.low, bins.high]) - np.array(bins.fnmr))
            label = name if alone else f"{subject.label}, {name}"
            axes.errorbar(
                place,
                bins.fnmr,
                error if order == 0 else None,
                label=f"{label}, ρ {bins.spearman:.2f}",
                color=color(order if alone else number),
                linestyle="-" if alone else line(order),
                marker="o",
                markersize=3.5,
                linewidth=1.3,
                elinewidth=1,
                capsize=2,
            )
    fmr = subjects[0].sections.calibration[benchmark].fmr
    axes.set(
        xlabel="genuine pairs by quality, worst to best",
        ylabel=f"FNMR at FMR {rate(fmr)}",
        xlim=(0, 1),
        ylim=(0, None),
    )
    rate_axes(axes, "xy")
    legend(axes)
    return svg(figure)
