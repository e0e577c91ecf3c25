"""Accepted shares of groups."""

from __future__ import annotations

import numpy as np

from facerts.evaluation.results.groups_result import AttributeGroups
from facerts.report.figures.style import REFERENCE, SIZE, color, legend_below, new_figure, rate_axes, svg

# Height of one interval and of what is around the rows, in inches.
INTERVAL, GAP, MARGINS = 0.16, 0.16, 0.95


def accepted_by_group(groups: AttributeGroups) -> str:
    """The accepted share of each group with its 95% interval: a row for each group, a color for each quality."""
    names = list(dict.fromkeys(name for accepted in groups.accepted.values() for name in accepted.groups))
    height = len(names) * (INTERVAL * len(groups.accepted) + GAP) + MARGINS
    figure, axes = new_figure(size=(SIZE[0], height))
    step = INTERVAL / (INTERVAL * len(groups.accepted) + GAP)
    for number, (quality, accepted) in enumerate(groups.accepted.items()):
        rows = np.array([row for row, name in enumerate(names) if name in accepted.groups])
        found = [accepted.groups[names[row]] for row in rows]
        shares, low, high = np.array([(one.accepted, *one.ci95) for one in found]).reshape(-1, 3).T
        axes.errorbar(
            shares,
            rows + step * (number - (len(groups.accepted) - 1) / 2),
            xerr=[shares - low, high - shares],
            fmt="o",
            markersize=4,
            color=color(number),
            elinewidth=1.4,
            capsize=2,
            label=quality,
            clip_on=False,
        )
        axes.axvline(accepted.accepted, linestyle="--", linewidth=1, color=REFERENCE, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("accepted share of the images")
    rate_axes(axes, "x")
    if len(groups.accepted) > 1:
        legend_below(figure, axes)
    return svg(figure)
