"""Mean verification accuracy against OOD AUROC, a point for each method: Fig. 9 of the RTS paper.

python eval/fig9_accuracy_against_ood.py MagFace=results/magface RTS=results/rts --out fig9.svg

Bars are 95 % intervals. Results come from `facerts evaluate verification` and `facerts evaluate ood` into one folder.
"""

from __future__ import annotations

from collections.abc import Sequence

from common import (
    Measured,
    Saved,
    accuracy_sets,
    add_out,
    add_results,
    load_labelled,
    mean_accuracy,
    parser_of,
    run,
    warn_of_other_data,
    write_svg,
)

from facerts.errors import DataError
from facerts.report.figures.style import colour, new_figure, svg


def main() -> None:
    parser = parser_of(__doc__)
    add_results(parser)
    parser.add_argument("--sets", nargs="+", help="benchmarks of the mean; default: all with an accuracy")
    parser.add_argument(
        "--score", default="quality", help="score that tells faces from others (default: quality)"
    )
    add_out(parser, "the SVG file")
    options = parser.parse_args()
    results = load_labelled(options.results)
    sets = accuracy_sets(results, options.sets)
    warn_of_other_data(results, "ood")
    write_svg(options.out, figure(results, sets, options.score))


def figure(results: Sequence[Saved], sets: Sequence[str], score: str) -> str:
    """The points with their labels."""
    drawn, axes = new_figure()
    for number, saved in enumerate(results):
        x, y = (scaled(one) for one in (ood_auroc(saved, score), mean_accuracy(saved, sets)))
        bars = [[[one.value - one.low], [one.high - one.value]] for one in (y, x)]
        axes.errorbar(x.value, y.value, *bars, fmt="o", color=colour(number), elinewidth=1, capsize=2)
        axes.annotate(
            saved.label,
            (x.value, y.value),
            (6, 6),
            textcoords="offset points",
            color=colour(number),
            fontsize=10,
        )
    axes.margins(0.15)
    axes.set_title(f"mean of {', '.join(sets)}", loc="left", fontsize=10)
    axes.set(xlabel=f"AUROC of {score}, faces against others (%)", ylabel="mean accuracy (%)")
    return svg(drawn)


def ood_auroc(saved: Saved, score: str) -> Measured:
    """AUROC of a score.

    Raises:
        DataError: no OOD section, or no such score.
    """
    by = saved.section("ood")["by"]
    if score not in by:
        raise DataError(f"{saved.folder}: no OOD numbers of {score!r}, only of {', '.join(by)}")
    return Measured(by[score]["auroc"], *by[score]["ci95"]["auroc"])


def scaled(measured: Measured) -> Measured:
    """In percent."""
    return Measured(*(100 * number for number in measured))


if __name__ == "__main__":
    run(main)
