"""Density of RTS's temperature t for a shared v: Fig. 3 of the RTS paper. Needs no results.

python eval/fig3_temperature_density.py --delta 8 16 32 --v 0.5 1 2 --out fig3.svg
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from common import parser_of, run
from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.report.figures import write_svg
from facerts.report.figures.style import color, legend, line, new_figure, svg

INK = "#666666"
POINTS = 400


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--delta", nargs="+", type=float, default=[8, 16, 32], help="Degrees of freedom δ, above 2."
    )
    parser.add_argument("--v", nargs="+", type=float, default=[0.5, 1, 2], help="Uncertainties v, above 0.")
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="SVG file.")
    options = parser.parse_args()
    write_svg(options.out, figure(options.delta, options.v))


def temperature_density(t: NDArray[np.floating], delta: float, v: float) -> NDArray[np.float64]:
    """Density of t = (1/(δ − 2)) Σ_i v ε_i² with ε_i ~ N(0, 1), i = 1…δ.

    This is the Gamma distribution with shape δ/2 and rate (δ/2 − 1)/v: its mode is v, its mean v·δ/(δ − 2).

    Raises:
        DataError: δ or v is out of range.
    """
    shape, rate = shape_and_rate(delta, v)
    density: NDArray[np.float64] = np.exp(
        shape * math.log(rate) + (shape - 1) * np.log(t) - rate * t - math.lgamma(shape)
    )
    return density


def shape_and_rate(delta: float, v: float) -> tuple[float, float]:
    """Shape and rate of the Gamma distribution; see ``temperature_density``."""
    if not (delta > 2 and v > 0):
        raise DataError(f"δ = {delta:g} and v = {v:g}: the temperature needs δ above 2 and v above 0")
    return delta / 2, (delta / 2 - 1) / v


def figure(deltas: Sequence[float], vs: Sequence[float]) -> str:
    """The figure: a line for each δ (color) and v (style), as SVG."""
    gammas = [shape_and_rate(delta, v) for delta in deltas for v in vs]
    # Up to three standard deviations above the mean, where nearly all of the density is.
    end = max((shape + 3 * math.sqrt(shape)) / rate for shape, rate in gammas)
    t = np.linspace(end / POINTS, end, POINTS)
    plot, axes = new_figure()
    for number, delta in enumerate(deltas):
        for order, v in enumerate(vs):
            axes.plot(t, temperature_density(t, delta, v), color=color(number), linestyle=line(order))
    for number, delta in enumerate(deltas):
        axes.plot([], [], color=color(number), label=f"δ = {delta:g}")
    for order, v in enumerate(vs):
        axes.plot([], [], color=INK, linestyle=line(order), label=f"v = {v:g}")
    axes.set(xlabel="temperature t", ylabel="density", xlim=(0, end), ylim=(0, None))
    legend(axes, "upper right", ncols=2)
    return svg(plot)


if __name__ == "__main__":
    run(main)
