"""Error rates of `facerts verify` on LFW, beside those stated by the model's calibration.

python eval/verify_table.py --lfw $FACERTS_DATA/lfw
python eval/verify_table.py --lfw $FACERTS_DATA/lfw --photos $FACERTS_DATA/photos/lfw --detector yunet.onnx

Without --photos, the pairs are those of pairs.txt, and the images are aligned crops. With --photos they are photos,
NAME_0001.jpg, in which YuNet finds the faces: once those of the pairs of pairs.txt of which both photos are there, and
once all pairs of the photos. FMR and FNMR are of the pairs that are decided; "any quality" decides them all. The 95%
intervals are from resamples of the people; where nothing was counted, they reach at least 3 / n, n being the number of
people (the rule of three).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from common import number, parser_of, rate_of_pairs, run
from numpy.typing import NDArray

from facerts.datasets import open_benchmark
from facerts.errors import DataError
from facerts.io.progress import track
from facerts.report.table import markdown_table
from facerts.scoring import Scorer, Verification, load


@dataclass(frozen=True)
class Labeled:
    """Results of pairs, and the two people of each, ``(P, 2)``."""

    name: str
    results: list[Verification]
    people: NDArray[np.int64]


def main() -> None:
    options = arguments()
    if options.photos is None:
        scorer = load(options.model)
        sets = [lfw_crops(scorer, options.lfw)]
    else:
        scorer = load(options.model, detector=options.detector)
        sets = lfw_photos(scorer, options.lfw, options.photos)
    rows = [row for labeled in sets for row in rows_of(scorer, labeled, options.fmr)]
    header = [
        *("pairs", "quality", "FMR", "threshold", "inconclusive", "impostor pairs", "measured FMR"),
        *("genuine pairs", "measured FNMR", "stated FNMR"),
    ]
    print(markdown_table(header, rows, words=2))
    for labeled in sets:
        failed = [result.error for result in labeled.results if result.error is not None]
        several = sum(result.note is not None for result in labeled.results)
        print(f"\n{labeled.name}: {len(failed)} pairs with an error, {several} with a note (several faces).")


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--model", help="Calibrated model (default: the default model).")
    parser.add_argument("--lfw", type=Path, required=True, help="LFW: aligned crops and pairs.txt.")
    parser.add_argument("--photos", type=Path, help="Folder of LFW's photos, for pairs of photos.")
    parser.add_argument("--detector", default="yunet", help="Detector for --photos, as for facerts verify.")
    parser.add_argument(
        "--fmr", nargs="+", type=float, default=[1e-2, 1e-3, 1e-4], help="Rates (default: 0.01 0.001 0.0001)."
    )
    return parser.parse_args()


def lfw_crops(scorer: Scorer, folder: Path) -> Labeled:
    """The pairs of pairs.txt as crops."""
    benchmark = open_benchmark(folder)
    assert benchmark.images.labels is not None
    paths = [benchmark.images.location(index) for index in range(len(benchmark.images))]
    pairs = [(paths[first], paths[second]) for first, second in benchmark.pairs]
    return Labeled("LFW, crops", verify(scorer, pairs), benchmark.images.labels[benchmark.pairs])


def lfw_photos(scorer: Scorer, folder: Path, photos: Path) -> list[Labeled]:
    """All pairs of the photos, and those of them that pairs.txt lists.

    Raises:
        DataError: there are fewer than two photos.
    """
    files = sorted(photos.glob("*.jpg"))
    if len(files) < 2:
        raise DataError(f"{photos}: needs at least two photos, NAME_0001.jpg")
    names = sorted({person_of(file) for file in files})
    pairs = list(combinations(files, 2))
    people = np.array([[names.index(person_of(file)) for file in pair] for pair in pairs])
    benchmark = open_benchmark(folder)
    keys = [Path(benchmark.images.key(index)).stem for index in range(len(benchmark.images))]
    listed = {frozenset((keys[first], keys[second])) for first, second in benchmark.pairs}
    rows = [row for row, pair in enumerate(pairs) if frozenset(file.stem for file in pair) in listed]
    results = verify(scorer, [(str(first), str(second)) for first, second in pairs])
    return [
        Labeled("photos, listed pairs", [results[row] for row in rows], people[rows]),
        Labeled("photos, all pairs", results, people),
    ]


def person_of(file: Path) -> str:
    return file.stem.rpartition("_")[0]


def verify(scorer: Scorer, pairs: list[tuple[str, str]]) -> list[Verification]:
    return list(track(scorer.verify_pairs(pairs, progress="embedding"), "verifying", len(pairs), "pairs"))


def rows_of(scorer: Scorer, labeled: Labeled, fmrs: list[float]) -> Iterator[list[str]]:
    """The cells of each rate, with the quality limit and without it."""
    compared = np.array([result.error is None for result in labeled.results])
    decided = np.array([result.decision in {"same", "different"} for result in labeled.results])
    similarity = np.array([-1 if result.similarity is None else result.similarity for result in labeled.results])
    genuine = labeled.people[:, 0] == labeled.people[:, 1]
    for quality, among in (("keep 0.95", decided), ("any quality", compared)):
        for fmr in fmrs:
            limited = scorer.match_rule(fmr=fmr, min_quality=None if among is decided else -9e9)
            matched = similarity >= limited.threshold
            assert limited.fnmr is not None
            yield [
                labeled.name,
                quality,
                f"{fmr:g}",
                f"{limited.threshold:.4f}",
                f"{np.mean(compared & ~among):.4f}",
                f"{np.sum(among & ~genuine):,}",
                rate(matched, among & ~genuine, labeled.people),
                f"{np.sum(among & genuine):,}",
                rate(~matched, among & genuine, labeled.people),
                number(limited.fnmr, limited.fnmr_ci95),
            ]


def rate(counted: NDArray[np.bool_], among: NDArray[np.bool_], people: NDArray[np.int64]) -> str:
    """The share of some pairs that are counted, with its interval."""
    return rate_of_pairs(counted[among], among[among], list(people[among].T), rule_of_three=True)


if __name__ == "__main__":
    run(main)
