"""Labels of points in a figure, where they hide the least."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from facerts.report.figures.style import names_as_text

# Where a label may stand beside its point, in points of type: the first place that overlaps least.
_PLACES = ((6, 6), (6, -14), (-6, 6), (-6, -14), (0, 16), (0, -24), (12, -4), (-12, -4))


def write_labels(figure: Figure, axes: Axes, labels: Sequence[tuple[str, tuple[float, float], str]]) -> None:
    """Write each label where it hides the least of the points and of the labels before it."""
    with names_as_text(figure):
        figure.draw_without_rendering()
        taken = []
        for _, center, _ in labels:
            x, y = axes.transData.transform(center)
            taken.append(Bbox.from_bounds(x - 5, y - 5, 10, 10))
        for label, center, ink in labels:
            written = []
            for place in _PLACES:
                align = {1: "left", 0: "center", -1: "right"}[int(np.sign(place[0]))]
                text = axes.annotate(
                    label, center, place, textcoords="offset points", color=ink, fontsize=10, ha=align
                )
                box = text.get_window_extent()
                text.remove()
                hidden = sum(_overlap(box, other) for other in taken)
                outside = box.width * box.height - _overlap(box, axes.get_window_extent())
                written.append((hidden + outside, place, align, box))
            _, place, align, box = min(written, key=lambda one: one[0])
            axes.annotate(label, center, place, textcoords="offset points", color=ink, fontsize=10, ha=align)
            taken.append(box)


def _overlap(one: Bbox, other: Bbox) -> float:
    shared = Bbox.intersection(one, other)
    return 0.0 if shared is None else float(shared.width * shared.height)
