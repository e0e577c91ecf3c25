"""Error rates of `facerts verify` by the lower quality of the two images, to choose below which it must not answer.

python eval/verify_quality.py --faces $FACERTS_DATA/faces/val-000000.tar --non-faces $FACERTS_DATA/pets \\
    --development '[01]$'

Half of the people and of the non-faces are for choosing, the other half for confirming. Pairs are of clean images, of
a clean image and a degraded one (see image_sets.py), of two degraded ones, of two non-faces, and of a face and a
non-face; a match of two non-faces, or of a face and a non-face, counts as a false match. An image is never compared
with its own copies. Thresholds are the model's own. The 95% intervals are from resamples of the people and of the
non-faces.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from common import open_people, parser_of, rate_of_pairs, run
from image_sets import open_image_set
from numpy.typing import NDArray

from facerts.datasets import Source, Subset, open_source
from facerts.errors import DataError
from facerts.report.table import markdown_table
from facerts.scoring import Scorer, load


@dataclass(frozen=True)
class Images:
    """Embeddings ``(N, d)`` and quality ``(N,)`` of images, and the person and the original image of each, ``(N,)``."""

    embedding: NDArray[np.float32]
    quality: NDArray[np.float32]
    person: NDArray[np.int64]
    original: NDArray[np.int64]

    def of(self, rows: NDArray[np.bool_]) -> Images:
        return Images(self.embedding[rows], self.quality[rows], self.person[rows], self.original[rows])


def main() -> None:
    options = arguments()
    scorer = load(options.model)
    (source, person), non_faces = open_people(options.faces), open_source(options.non_faces)
    rows = [i for i in range(len(non_faces)) if re.search(options.development, Path(non_faces.key(i)).stem)]
    if not rows:
        raise DataError(f"{non_faces.name}: no name matches --development {options.development!r}")
    original = np.arange(len(source))
    clean = embed(scorer, source, person, original)
    copies = [
        embed(scorer, open_image_set("degraded", source, seed), person, original)
        for seed in range(options.copies)
    ]
    degraded = Images(
        np.concatenate([copy.embedding for copy in copies]),
        np.concatenate([copy.quality for copy in copies]),
        np.tile(person, len(copies)),
        np.tile(original, len(copies)),
    )
    # Every non-face is somebody of its own, and nobody among the people.
    nobody = -1 - np.arange(len(rows))
    others = embed(scorer, Subset(non_faces, rows), nobody, nobody)
    random = np.random.default_rng(options.seed)
    halves = (
        np.array_split(random.permutation(who), 2) for who in (np.arange(len(source.identities)), nobody)
    )
    for half, chosen, chosen_others in zip(("choose", "confirm"), *halves, strict=True):
        faces, poor = (images.of(np.isin(images.person, chosen)) for images in (clean, degraded))
        things = others.of(np.isin(others.person, chosen_others))
        groups = {
            "clean, clean": (faces, faces),
            "clean, degraded": (faces, poor),
            "degraded, degraded": (poor, poor),
            "non-face, non-face": (things, things),
            "clean, non-face": (faces, things),
        }
        table = [
            [name, *cells]
            for name, (first, second) in groups.items()
            for cells in rows_of(scorer, first, second, options)
        ]
        header = ["pair", "lower quality", "FMR", "impostor pairs", "measured FMR", "genuine pairs", "FNMR"]
        caption = f"{half}: {len(chosen)} people, {len(chosen_others)} non-faces"
        print(markdown_table(header, table, caption, words=2))
        print()
    shares = ", ".join(
        f"{keep:g}: {np.mean(others.quality >= scorer.threshold(keep)):.4f} of the non-faces, "
        f"{np.mean(degraded.quality >= scorer.threshold(keep)):.4f} of the degraded images"
        for keep in options.keep
    )
    print(f"Accepted at keep {shares}.")


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--model", help="Calibrated model (default: the default model).")
    parser.add_argument("--faces", nargs="+", required=True, help="Aligned faces with identities.")
    parser.add_argument("--non-faces", nargs="+", required=True, help="Aligned crops without faces.")
    parser.add_argument(
        "--development", default="", help="Regular expression for the names of the non-faces to use."
    )
    parser.add_argument(
        "--keep", nargs="+", type=float, default=[0.99, 0.95, 0.8], help="Limits of quality, mildest first."
    )
    parser.add_argument("--fmr", nargs="+", type=float, default=[1e-3], help="Rates (default: 0.001).")
    parser.add_argument("--copies", type=int, default=3, help="Degraded copies of each image (default: 3).")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the halves (default: 0).")
    return parser.parse_args()


def embed(scorer: Scorer, source: Source, person: NDArray[np.int64], original: NDArray[np.int64]) -> Images:
    size = scorer.embedder.batch_size
    outputs = [
        scorer.embed([source.crop(index) for index in range(start, min(start + size, len(source)))])
        for start in range(0, len(source), size)
    ]
    quality = [np.zeros(0, np.float32) if batch.quality is None else batch.quality for batch in outputs]
    return Images(
        np.concatenate([batch.embedding for batch in outputs]), np.concatenate(quality), person, original
    )


def rows_of(
    scorer: Scorer, first: Images, second: Images, options: argparse.Namespace
) -> Iterator[list[str]]:
    """The cells of each band of quality and each rate."""
    cosine = first.embedding @ second.embedding.T
    lower = np.minimum(first.quality[:, None], second.quality)
    same = first.person[:, None] == second.person
    once = first.original[:, None] != second.original
    if first is second:
        once = np.triu(once)
    people = first.person[:, None], second.person[None]
    limits = [-np.inf, *(scorer.threshold(keep) for keep in options.keep), np.inf]
    names = ["", *(f"{keep:g}" for keep in options.keep), ""]
    for (low, high), (above, below) in zip(pairwise(limits), pairwise(names), strict=True):
        band = once & (lower >= low) & (lower < high)
        words = f"{above} to {below}" if above and below else f"below {below}" if below else f"from {above}"
        for fmr in options.fmr:
            match = cosine >= scorer.match_threshold(fmr)
            yield [
                words,
                f"{fmr:g}",
                f"{np.sum(band & ~same):,}",
                rate_of_pairs(match, band & ~same, people),
                f"{np.sum(band & same):,}",
                rate_of_pairs(~match, band & same, people),
            ]


if __name__ == "__main__":
    run(main)
