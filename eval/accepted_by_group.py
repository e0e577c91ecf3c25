"""Which share of whose faces a model's own threshold accepts: by source, and by a number in the pictures' names.

python eval/accepted_by_group.py results/mine --model mine.onnx --keep 0.95 \\
    --source aaf --number 'a(\\d+)\\.' --edges 13 20 40 60

The result comes from `facerts evaluate ood`, the threshold from `facerts calibrate`. All-Age-Faces has the age in its
file names, so the example gives the shares by age. A threshold that accepts some people's faces more rarely than
others' treats them worse; this says where, not why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from common import Saved, load_labeled, parser_of, percent, run
from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.evaluation.labeled import Measured
from facerts.metrics.calibration import wilson
from facerts.report.markdown import markdown_table
from facerts.scoring import load


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("result", metavar="[LABEL=]FOLDER", help="a result folder")
    parser.add_argument("--model", required=True, help="whose threshold it is")
    parser.add_argument("--keep", type=float, default=0.95, help="which of its thresholds (default: 0.95)")
    parser.add_argument("--source", help="of the pictures whose names have a number")
    parser.add_argument("--number", default=r"(\d+)", help="a regular expression whose group is the number")
    parser.add_argument("--edges", nargs="+", type=float, default=[], help="where a new group begins")
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
    saved: Saved, source: str, threshold: float, rows: NDArray[np.bool_] | None = None, name: str = ""
) -> list[str]:
    """A row of the table: how many of a source's pictures, or of some of them, are at or above the threshold."""
    quality = saved.array(f"ood/{source}/quality")
    chosen = quality if rows is None else quality[rows]
    rate = np.array([(chosen >= threshold).mean()])
    low, high = wilson(rate, np.array([len(chosen)]))
    share = Measured(rate[0], low[0], high[0])
    return [name or source, f"{len(chosen):,}", percent(share), f"{np.median(chosen):.3f}"]


def by_number(
    saved: Saved, source: str, pattern: str, edges: Sequence[float], threshold: float
) -> Iterator[list[str]]:
    """A row for each group of pictures by the number in their names.

    Raises:
        DataError: a name has none.
    """
    names = saved.array(f"ood/{source}/names")
    found = [re.search(pattern, str(name)) for name in names]
    if None in found:
        raise DataError(f"{saved.folder}: {names[found.index(None)]!r} of {source} has no {pattern!r}")
    numbers = np.array([float(match.group(1)) for match in found if match])
    ends = [-np.inf, *sorted(edges), np.inf]
    for low, high in pairwise(ends):
        rows = (numbers >= low) & (numbers < high)
        if rows.any():
            name = f"{source}, {numbers[rows].min():g} to {numbers[rows].max():g}"
            yield accepted(saved, source, threshold, rows, name)


if __name__ == "__main__":
    run(main)
