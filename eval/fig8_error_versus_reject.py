"""FNMR at an FMR of 1e-3 against the share rejected, with each method's quality: Fig. 8 of the RTS paper.

python eval/fig8_error_versus_reject.py RTS=results/rts MagFace=results/magface --sets lfw agedb --out figures

Writes fig8_SET.svg for each benchmark. All curves use the similarities of the first folder, and only the quality
differs: every other folder gives its quality of the same pictures, matched by name. The threshold is chosen once, on
all impostor pairs. Results come from `facerts evaluate verification`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from common import (
    Saved,
    add_out,
    add_results,
    load_labeled,
    parser_of,
    run,
    warn_of_other_pairs,
)
from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.evaluation.labeled import by_cosine, quality_of
from facerts.metrics.reject import (
    RejectCurve,
    error_versus_reject,
    oracle_quality,
    pair_quality,
)
from facerts.metrics.verification import reachable
from facerts.report.figures import one_embedding_curves, write_svgs


def main() -> None:
    parser = parser_of(__doc__)
    add_results(parser)
    parser.add_argument(
        "--sets",
        nargs="+",
        help="benchmarks; default: all of the first folder that have pairs and the cosine",
    )
    parser.add_argument("--score", default="quality", help="which score of each folder is its quality")
    parser.add_argument("--fmr", type=float, default=1e-3, help="false match rate (default: 0.001)")
    add_out(parser, "the folder for the SVG files")
    options = parser.parse_args()
    results = load_labeled(options.results)
    first = results[0]
    sets = options.sets or [
        name
        for name, section in first.content.verification.items()
        if by_cosine(section) and f"verification/{name}/scores" in first.arrays
    ]
    if not sets:
        raise DataError(
            f"{first.folder}: no verification on pairs of images; `facerts evaluate verification` adds it"
        )
    drawn = {}
    for name in sets:
        warn_of_other_pairs(results, name)
        curves, best = reject_curves(results, name, options.score, options.fmr)
        methods = [(label, curve.fnmr[None]) for label, curve in curves.items()]
        label = f"FNMR at FMR {options.fmr:g}, {name}"
        drawn[f"fig8_{name}"] = one_embedding_curves({name: methods}, best.rejected, best.fnmr, label)
    write_svgs(options.out, drawn)


def reject_curves(
    results: Sequence[Saved], name: str, score: str, fmr: float
) -> tuple[dict[str, RejectCurve], RejectCurve]:
    """A curve for each result by its label, and the best that there can be.

    Args:
        results: the first gives pairs and similarities.
        name: of the benchmark.
        score: which score of a picture is its quality.
        fmr: false match rate at which the threshold is chosen.

    Raises:
        DataError: something is missing, the pictures differ, or there are too few impostor pairs.
    """
    first = results[0]
    prefix = f"verification/{name}/"
    similarity, same, pairs = (first.array(prefix + key) for key in ("scores", "same", "pairs"))
    impostors = int((~same).sum())
    if not reachable([fmr], impostors):
        raise DataError(
            f"{first.folder}: FMR {fmr:g} on {name} needs at least {int(np.ceil(1 / fmr)):,} impostor pairs, and "
            f"there are {impostors:,}; choose a higher --fmr"
        )

    def curve(quality: NDArray[np.floating]) -> RejectCurve:
        return error_versus_reject(similarity, same, quality, fmr=fmr)

    curves = {
        saved.label: curve(pair_quality(quality_of(saved, first, name, score), pairs)) for saved in results
    }
    return curves, curve(oracle_quality(similarity, same))


if __name__ == "__main__":
    run(main)
