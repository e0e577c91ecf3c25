"""Uncertainty of the same faces, clean and degraded, over the steps of training runs: Fig. 4 of the RTS paper.

facerts train papers method=rts optim.margin_ramp=0 validation.degraded=500 validation.every_epochs=0.1 --out runs/rts
python eval/fig4_uncertainty_over_training.py RTS=runs/rts --out fig4.svg

The first command fixes the margin, as the paper does for this figure. Lines are medians, bands reach from the 5th to
the 95th percentile. Each label has its own panel and scale; several runs of one label are its seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from common import add_out, parser_of, run
from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.evaluation.labeled import split_label
from facerts.images.corruptions import KINDS
from facerts.report.figures import quality_panels, write_svg
from facerts.report.subject import LogLine, read_log


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="[LABEL=]RUN",
        help="Run folders; the label is the folder's name by default.",
    )
    parser.add_argument(
        "--poor",
        nargs="+",
        choices=KINDS,
        default=["blur", "occlusion"],
        metavar="KIND",
        help=f"Kinds of degradation to draw: {', '.join(KINDS)} (default: blur occlusion).",
    )
    parser.add_argument(
        "--score",
        choices=["uncertainty", "norm"],
        default="uncertainty",
        help="Score to draw (default: uncertainty, the method's own).",
    )
    add_out(parser, "SVG file.")
    options = parser.parse_args()
    sets = {"clean": "clear", **{kind: f"poor: {kind.replace('_', ' ')}" for kind in options.poor}}
    methods: dict[str, dict[str, list[NDArray[np.float64]]]] = {}
    for text in options.runs:
        label, folder = split_label(text)
        drawn = methods.setdefault(label or Path(folder).name, {name: [] for name in sets.values()})
        log = read_log(Path(folder))
        for kind, name in sets.items():
            drawn[name].append(percentiles(log, folder, kind, options.score))
    write_svg(options.out, quality_panels(methods, options.score))


def percentiles(log: Sequence[LogLine], folder: str, kind: str, score: str) -> NDArray[np.float64]:
    """``(4, S)`` steps, and the 5th, 50th and 95th percentile of a score of clean or degraded faces at each.

    Raises:
        DataError: the run has not logged them.
    """
    fields = ("step", *(f"{score}_p{percent}" for percent in (5, 50, 95)))
    lines = [
        [line[field] for field in fields]
        for line in log
        if line["kind"] == "quality"
        and str(line.get("corruption")).partition("/")[0] == kind
        and all(isinstance(line.get(field), int | float) for field in fields)
    ]
    if not lines:
        raise DataError(
            f"{folder}: its log has no {score} of {kind} faces; train with validation.degraded=500, for example"
        )
    return np.array(lines, dtype=np.float64).T


if __name__ == "__main__":
    run(main)
