"""Distributions of a score under Gaussian blur, a panel for each method: Fig. 7 of the RTS paper.

python eval/fig7_blur_distributions.py RTS=results/rts DUL=results/dul --radius 2 3 5 --out fig7.svg

Results come from `facerts evaluate ladder`, whose blur has radii of 1 to 5 pixels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from common import (
    Saved,
    add_out,
    add_results,
    ladder_source,
    ladder_values,
    load_labelled,
    parser_of,
    run,
    write_svg,
)
from matplotlib.axes import Axes
from numpy.typing import NDArray

from facerts.degrade import HARDEST_BLUR
from facerts.report.figures.style import REFERENCE, SIZE, colour, legend, new_figure, svg

BINS = 30


def main() -> None:
    parser = parser_of(__doc__)
    add_results(parser)
    parser.add_argument("--source", help="whose ladder; default: the only one")
    parser.add_argument(
        "--score", default="quality", help="quality (the default), v of RTS, norm, sharpness …"
    )
    parser.add_argument("--radius", nargs="+", type=float, default=[2, 3, 5], help="radii of blur in pixels")
    add_out(parser, "the SVG file")
    options = parser.parse_args()
    results = load_labelled(options.results)
    source = ladder_source(results, options.source)
    write_svg(options.out, figure(results, source, options.score, options.radius))


def figure(results: Sequence[Saved], source: str, score: str, radii: Sequence[float]) -> str:
    """A panel for each result, each with a scale of its own: scores of different methods have no common one."""
    width, height = SIZE
    drawn, grid = new_figure(1, len(results), size=(0.8 * width * len(results), height))
    for axes, saved in zip(np.atleast_1d(grid), results, strict=True):
        steps = {
            "as they are": "clean",
            **{f"blur, radius {r:g}": f"blur/{r / HARDEST_BLUR:g}" for r in radii},
        }
        draw(axes, {label: ladder_values(saved, source, step, score) for label, step in steps.items()})
        axes.set(xlabel=f"{score}, {saved.label}")
    first = np.atleast_1d(grid)[0]
    first.set_ylabel(f"density, {source}")
    legend(first)
    return svg(drawn)


def draw(axes: Axes, values: dict[str, NDArray[np.float64]]) -> None:
    """Densities in common bins, which leave out the last half percent at each end."""
    low, high = np.quantile(np.concatenate(list(values.values())), [0.005, 0.995])
    edges = np.linspace(low, high, BINS + 1) if high > low else np.linspace(low - 0.5, low + 0.5, BINS + 1)
    for number, (label, of_step) in enumerate(values.items()):
        counts, _ = np.histogram(of_step, edges)
        density = counts / len(of_step) / np.diff(edges)
        look = (
            {"color": REFERENCE, "fill": True, "alpha": 0.45}
            if number == 0
            else {"color": colour(number - 1)}
        )
        axes.stairs(density, edges, label=label, linewidth=1.6, **look)


if __name__ == "__main__":
    run(main)
