"""The quality league: errors left by the share rejected, and both uses of a quality against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from facerts.report.figures.labels import write_labels
from facerts.report.figures.style import (
    INK,
    REFERENCE,
    color,
    finish_panels,
    line,
    new_figure,
    panels,
    rate_axes,
    reject_references,
    svg,
)

MAX_REJECTED = 0.3


def league_curves(
    curves: Mapping[str, Mapping[str, NDArray[np.floating]]],
    rejected: NDArray[np.floating],
    colors: Sequence[str],
    bound: str,
    label: str,
) -> str:
    """FNMR over the share of genuine pairs rejected, a panel for each recognizer.

    Args:
        curves: ``(R,)`` FNMR by recognizer and quality.
        rejected: ``(R,)`` shares.
        colors: qualities in the order of their colors.
        bound: label of the best possible order, drawn as a reference.
        label: of the FNMR.
    """
    figure, every = panels(len(curves))
    inside = rejected <= MAX_REJECTED + 1e-9
    for axes, (recognizer, by_quality) in zip(every, curves.items(), strict=True):
        for number, quality in enumerate(colors):
            if quality in by_quality:
                look = {"color": color(number), "linestyle": line(number // 12)}
                axes.plot(rejected[inside], by_quality[quality][inside], label=quality, **look)
        if bound in by_quality:
            best = by_quality[bound]
            reject_references(axes, rejected[inside], best[inside])
        axes.set(xlim=(0, MAX_REJECTED), ylim=(0, None))
        axes.set_title(recognizer, loc="left", fontsize=10, color=INK)
        rate_axes(axes, "xy")
    every[0].set_ylabel(label)
    every[-1].set_xlabel("genuine pairs rejected")
    return finish_panels(figure, every)


def two_uses(points: Mapping[str, tuple[float, float]], others: str) -> str:
    """A point for each quality: non-faces rejected against errors left.

    Args:
        points: TNR at TPR 95% and mean area, by quality.
        others: what the non-faces are.
    """
    figure, axes = new_figure()
    labels = []
    for number, (quality, (tnr, area)) in enumerate(points.items()):
        axes.plot(tnr, area, "o", color=color(number), clip_on=False)
        labels.append((quality, (tnr, area), color(number)))
    axes.margins(0.15)
    axes.axhline(1, linestyle="--", color=REFERENCE, linewidth=1.2)
    axes.set(
        xlabel=f"{others} rejected while 95% of the faces are kept", ylabel="mean area (lower is better)"
    )
    rate_axes(axes, "x")
    write_labels(figure, axes, labels)
    return svg(figure)
