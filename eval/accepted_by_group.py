"""The share of faces that a model's own threshold accepts, by source and by a number in the file names.

python eval/accepted_by_group.py results/mine --model mine.onnx --keep 0.95 \\
    --source aaf --number 'a(\\d+)\\.' --edges 13 20 40 60

The result comes from `facerts evaluate ood`, the threshold from `facerts calibrate`. All-Age-Faces has the age in its
file names, so the example gives the shares by age. A threshold that accepts the faces of one group more rarely than
those of others disadvantages that group; this script shows where, not why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from common import SavedResult, load_labeled, parser_of, percent, run
from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.evaluation.labeled import Measured
from facerts.metrics.calibration import wilson
from facerts.report.markdown import markdown_table
from facerts.scoring import load


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("result", metavar="[LABEL=]FOLDER", help="Result folder.")
    parser.add_argument("--model", required=True, help="Model whose calibrated threshold is used.")
    parser.add_argument(
        "--keep",
        type=float,
        default=0.95,
        help="Share of faces that the calibrated threshold keeps (default: 0.95).",
    )
    parser.add_argument("--source", help="Source of the images to group by the number in their names.")
    parser.add_argument(
        "--number", default=r"(\d+)", help="Regular expression whose first group is the number."
    )
    parser.add_argument("--edges", nargs="+", type=float, default=[], help="Lower bounds of the groups.")
    options = parser.parse_args()
    saved = load_labeled([options.result])[0]
    threshold = load(options.model).threshold(options.keep)
    rows = [accepted(saved, source, threshold) for source in saved.ood.faces]
    if options.source:
        rows += by_number(saved, options.source, options.number, options.edges, threshold)
    print(markdown_table(["faces", "number", "accepted", "median quality"], rows, words=1))
    print(
        f"\nAccepted in percent [95 % Wilson interval] at quality {threshold:.4f}, which keeps {options.keep:g}"
    )


def accepted(
    saved: SavedResult, source: str, threshold: float, rows: NDArray[np.bool_] | None = None, name: str = ""
) -> list[str]:
    """A row of the table: the share of a source's images (or of some rows of it) at or above the threshold."""
    quality = saved.array(f"ood/{source}/quality")
    if rows is not None:
        quality = quality[rows]
    rate = np.array([(quality >= threshold).mean()])
    low, high = wilson(rate, np.array([len(quality)]))
    share = Measured(rate[0], low[0], high[0])
    return [name or source, f"{len(quality):,}", percent(share), f"{np.median(quality):.3f}"]


def by_number(
    saved: SavedResult, source: str, pattern: str, edges: Sequence[float], threshold: float
) -> Iterator[list[str]]:
    """Yield a row for each group of images, by the number in their names.

    Raises:
        DataError: a name has no number.
    """
    names = saved.array(f"ood/{source}/names")
    matches = [re.search(pattern, str(name)) for name in names]
    if None in matches:
        raise DataError(
            f"{saved.folder}: the name {names[matches.index(None)]!r} in {source} does not match --number {pattern!r}"
        )
    numbers = np.array([float(match.group(1)) for match in matches if match])
    ends = [-np.inf, *sorted(edges), np.inf]
    for low, high in pairwise(ends):
        rows = (numbers >= low) & (numbers < high)
        if rows.any():
            name = f"{source}, {numbers[rows].min():g} to {numbers[rows].max():g}"
            yield accepted(saved, source, threshold, rows, name)


if __name__ == "__main__":
    run(main)
