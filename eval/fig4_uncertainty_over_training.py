"""RTS's uncertainty v of clear and of poor images over training: Fig. 4 of the RTS paper.

python eval/fig4_uncertainty_over_training.py 1000=results/step1000 20000=results/step20000 --out fig4.svg

Each folder is of one checkpoint, exported and run through `facerts evaluate corruptions`. Clear images
are the faces as they are, poor ones the same faces corrupted. Lines are medians, bands reach from 5 to 95 %.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from common import Saved, add_out, corrupted_source, corrupted_values, load_labeled, parser_of, run

from facerts.errors import DataError
from facerts.report.figures import bands_by_step, write_svg

PERCENTILES = (5, 50, 95)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("results", nargs="+", metavar="STEP=FOLDER", help="results of checkpoints")
    parser.add_argument("--source", help="source of the faces; default: the only one")
    parser.add_argument("--poor", default="blur", help="kind of corruption (default: blur)")
    parser.add_argument(
        "--severity", type=float, default=1.0, help="its severity, a step of the benchmark (default: 1)"
    )
    parser.add_argument(
        "--score", default="v", help="v of RTS (the default), or a score of the result: quality, norm …"
    )
    add_out(parser, "the SVG file")
    options = parser.parse_args()
    results = load_labeled(options.results)
    source = corrupted_source(results, options.source)
    write_svg(options.out, figure(results, source, f"{options.poor}/{options.severity:g}", options.score))


def figure(results: Sequence[Saved], source: str, poor: str, score: str) -> str:
    """Medians and bands by training step.

    Raises:
        DataError: a label is no number, or a result lacks the corruptions.
    """
    ordered = sorted(results, key=step_of)
    steps = [step_of(saved) for saved in ordered]
    bands = {}
    for step, label in (("clean", "clear"), (poor, f"poor ({poor.replace('/', ', severity ')})")):
        values = [corrupted_values(saved, source, step, score) for saved in ordered]
        bands[label] = np.transpose([np.percentile(one, PERCENTILES) for one in values])
    return bands_by_step(steps, bands, f"{'uncertainty v' if score == 'v' else score}, {source}")


def step_of(saved: Saved) -> float:
    """The training step that a label says."""
    try:
        return float(saved.label)
    except ValueError:
        raise DataError(
            f"{saved.folder}: {saved.label!r} is no training step; give it as STEP=FOLDER"
        ) from None


if __name__ == "__main__":
    run(main)
