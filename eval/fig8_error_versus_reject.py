"""FNMR at an FMR of 1e-3 over the rejection rate, for each method's quality: Fig. 8 of the RTS paper.

python eval/fig8_error_versus_reject.py RTS=results/rts MagFace=results/magface --sets lfw agedb --out figures

Writes fig8_SET.svg for each benchmark. All curves use the similarities of the first folder, and differ only in the
quality, which comes from each folder, matched by image name. The threshold is chosen once, on all impostor pairs.
Results come from `facerts evaluate verification`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from common import (
    SavedResult,
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
        help="Benchmarks; by default all of the first folder with pairs and the cosine as similarity.",
    )
    parser.add_argument(
        "--score", default="quality", help="Score of each folder to reject by (default: quality)."
    )
    parser.add_argument("--fmr", type=float, default=1e-3, help="False match rate (default: 0.001).")
    add_out(parser, "Folder for the SVG files.")
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
            f"{first.folder}: none of its benchmarks has pairs of images; `facerts evaluate verification` adds them"
        )
    svgs = {}
    for name in sets:
        warn_of_other_pairs(results, name)
        curves, best = reject_curves(results, name, options.score, options.fmr)
        methods = [(label, curve.fnmr[None]) for label, curve in curves.items()]
        label = f"FNMR at FMR {options.fmr:g}, {name}"
        svgs[f"fig8_{name}"] = one_embedding_curves({name: methods}, best.rejected, best.fnmr, label)
    write_svgs(options.out, svgs)


def reject_curves(
    results: Sequence[SavedResult], name: str, score: str, fmr: float
) -> tuple[dict[str, RejectCurve], RejectCurve]:
    """The curve of each result, by label, and the best possible curve.

    Args:
        results: the first one provides pairs and similarities.
        name: name of the benchmark.
        score: score of an image to reject by.
        fmr: false match rate at which the threshold is chosen.

    Raises:
        DataError: a result lacks something, the images differ, or there are too few impostor pairs.
    """
    first = results[0]
    prefix = f"verification/{name}/"
    similarity, same, pairs = (first.array(prefix + key) for key in ("scores", "same", "pairs"))
    impostors = int((~same).sum())
    if not reachable([fmr], impostors):
        raise DataError(
            f"{first.folder}: FMR {fmr:g} on {name} needs at least {int(np.ceil(1 / fmr)):,} impostor pairs, but "
            f"there are only {impostors:,}; choose a higher --fmr"
        )

    def curve(quality: NDArray[np.floating]) -> RejectCurve:
        return error_versus_reject(similarity, same, quality, fmr=fmr)

    curves = {
        saved.label: curve(pair_quality(quality_of(saved, first, name, score), pairs)) for saved in results
    }
    return curves, curve(oracle_quality(similarity, same))


if __name__ == "__main__":
    run(main)
