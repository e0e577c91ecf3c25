"""Writes the qualities of crops that another detector might have cut, as a .csv for ``facerts evaluate fiqa``.

python eval/recut_qualities.py $FACERTS_DATA/lfw $FACERTS_DATA/pets --quality facerts-small --out recut.csv
facerts evaluate fiqa --model mobilefacenet.onnx --quality facerts-small \\
    --quality "jittered=recut.csv:facerts-small jittered" --quality "tight=recut.csv:facerts-small tight" \\
    --quality "loose=recut.csv:facerts-small loose" --data $FACERTS_DATA/lfw --out-of $FACERTS_DATA/pets --out recut

Each change by itself (see image_sets.py): landmarks moved by normal noise of a tenth of the eyes' distance (jittered),
and crops 15% tighter or looser. The recognizers' errors stay those of the crops as they are, so that the differences
are of the quality alone. Non-faces are cut anew like faces, because the same detector cuts them.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from common import parser_of, run
from image_sets import open_image_set

from facerts.datasets import Source
from facerts.embedding.embed import score_source
from facerts.errors import Error
from facerts.evaluation.evaluation_options import faces_of
from facerts.evaluation.fiqa.lineup import ComputedQuality, open_qualities
from facerts.io.files import atomic_write

CHANGES = ("jittered", "tight", "loose")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("sources", nargs="+", help="Aligned images of faces or non-faces.")
    parser.add_argument(
        "--quality", nargs="+", default=["facerts-small"], metavar="[LABEL=]MODEL", help="Quality models."
    )
    parser.add_argument(
        "--describe",
        nargs="+",
        default=[],
        metavar="LABEL=PATH",
        help="Descriptions of foreign quality models.",
    )
    parser.add_argument("--seed", type=int, default=0, help="Seed of the jitter.")
    parser.add_argument("--threads", type=int, default=1, help="Threads per forward pass.")
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="The .csv file to write.")
    options = parser.parse_args()
    qualities = models_of(options)
    columns = [f"{label} {change}" for label in qualities for change in CHANGES]
    rows = [row for path in options.sources for row in rows_of(faces_of(path), qualities, options.seed)]
    with atomic_write(options.out, "w") as file:
        csv.writer(file).writerows([["image", *columns], *rows])
    print(f"{options.out}: {len(rows):,} images; {', '.join(columns)}")


def models_of(options: argparse.Namespace) -> dict[str, ComputedQuality]:
    """The quality models by their labels.

    Raises:
        Error: a quality is a list of scores.
    """
    models = {}
    opened = open_qualities(
        options.quality, descriptions=options.describe, threads=options.threads, batch_size=16
    )
    for label, quality in opened.items():
        if not isinstance(quality, ComputedQuality):
            raise Error(f"{label}: a list of scores says nothing about crops that are cut anew; give a model")
        # The others are qualities of the crop itself, such as its sharpness.
        if quality.kind == "model":
            models[label] = quality
    return models


def rows_of(source: Source, qualities: dict[str, ComputedQuality], seed: int) -> list[list[str]]:
    """Each image's key and its qualities after each change."""
    scores = [
        score_source(open_image_set(change, source, seed), {"quality": quality.score}, batch_size=16)[
            "quality"
        ]
        for quality in qualities.values()
        for change in CHANGES
    ]
    return [
        [source.key(index), *(repr(float(score)) for score in values)]
        for index, values in enumerate(np.column_stack(scores))
    ]


if __name__ == "__main__":
    run(main)
