"""Mean verification accuracy over OOD AUROC, one point per method: Fig. 9 of the RTS paper.

python eval/fig9_accuracy_against_ood.py MagFace=results/magface RTS=results/rts1 RTS=results/rts2 --out fig9.svg

Bars are 95 % intervals. Several folders of one label are training runs with different seeds: small points around
their mean, whose bars reach from the lowest to the highest. Results come from `facerts evaluate verification` and
`facerts evaluate ood` into one folder.
"""

from __future__ import annotations

from common import (
    Measured,
    SavedResult,
    accuracy_sets,
    add_out,
    add_results,
    mean_accuracy,
    parser_of,
    run,
    warn_of_other_ood,
)

from facerts.errors import DataError
from facerts.evaluation.compare.methods import methods_of
from facerts.evaluation.labeled import load_labeled
from facerts.report.figures import Point, balance, write_svg


def main() -> None:
    parser = parser_of(__doc__)
    add_results(parser)
    parser.add_argument(
        "--sets", nargs="+", help="Benchmarks to average over; by default all with an accuracy."
    )
    parser.add_argument(
        "--score", default="quality", help="Score that separates faces from non-faces (default: quality)."
    )
    add_out(parser, "SVG file.")
    options = parser.parse_args()
    results = load_labeled(options.results)
    sets = accuracy_sets(results, options.sets)
    warn_of_other_ood(results)
    points = [
        (
            method.label,
            [Point(ood_auroc(saved, options.score), mean_accuracy(saved, sets)) for saved in method.runs],
        )
        for method in methods_of(results)
    ]
    write_svg(options.out, balance(points, options.score, sets))


def ood_auroc(saved: SavedResult, score: str) -> Measured:
    """AUROC of a score.

    Raises:
        DataError: no OOD section, or no such score.
    """
    by = saved.ood.by
    if score not in by:
        raise DataError(f"{saved.folder}: has no OOD results for {score!r}, only for {', '.join(by)}")
    return Measured(by[score].auroc, *by[score].ci95["auroc"])


if __name__ == "__main__":
    run(main)
