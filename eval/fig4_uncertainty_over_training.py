"""RTS's uncertainty v of clean and degraded images over the course of training: Fig. 4 of the RTS paper.

python eval/fig4_uncertainty_over_training.py 1000=results/step1000 20000=results/step20000 --out fig4.svg

Each folder has the results of one checkpoint, exported and evaluated with `facerts evaluate corruptions`. Clear images
are the original faces, poor images the same faces degraded. Lines are medians, bands reach from the 5th to the 95th
percentile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from common import SavedResult, add_out, corruption_scores, corruption_source, load_labeled, parser_of, run

from facerts.errors import DataError
from facerts.report.figures import bands_by_step, write_svg

PERCENTILES = (5, 50, 95)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("results", nargs="+", metavar="STEP=FOLDER", help="Result folders of checkpoints.")
    parser.add_argument("--source", help="Source of the faces; by default the only one.")
    parser.add_argument("--poor", default="blur", help="Kind of degradation (default: blur).")
    parser.add_argument(
        "--severity",
        "--strength",
        type=float,
        default=1.0,
        help="Severity of the degradation, a step of the corruption benchmark (default: 1).",
    )
    parser.add_argument(
        "--score", default="v", help="Score to plot: v of RTS (the default), quality, norm, sharpness …"
    )
    add_out(parser, "SVG file.")
    options = parser.parse_args()
    results = load_labeled(options.results)
    source = corruption_source(results, options.source)
    write_svg(options.out, figure(results, source, f"{options.poor}/{options.severity:g}", options.score))


def figure(results: Sequence[SavedResult], source: str, poor: str, score: str) -> str:
    """The figure: medians and bands by training step, as SVG.

    Raises:
        DataError: a label is not a number, or a result has no corruption benchmark.
    """
    ordered = sorted(results, key=step_of)
    steps = [step_of(saved) for saved in ordered]
    bands = {}
    for step, label in (("clean", "clear"), (poor, f"poor ({poor.replace('/', ', severity ')})")):
        scores = [corruption_scores(saved, source, step, score) for saved in ordered]
        bands[label] = np.transpose([np.percentile(values, PERCENTILES) for values in scores])
    return bands_by_step(steps, bands, f"{'uncertainty v' if score == 'v' else score}, {source}")


def step_of(saved: SavedResult) -> float:
    """The training step, from the label."""
    try:
        return float(saved.label)
    except ValueError:
        raise DataError(
            f"{saved.folder}: the label {saved.label!r} is not a training step; use STEP=FOLDER"
        ) from None


if __name__ == "__main__":
    run(main)
