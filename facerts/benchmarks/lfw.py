"""Labeled Faces in the Wild, and its cross-quality variant: a list of pairs over a folder by person.

Huang et al., "Labeled Faces in the Wild", 2007, view 2. The first line of pairs.txt gives the number of folds and of
pairs per fold and class; "NAME 1 4" is a genuine pair, "NAME 1 OTHER 2" an impostor pair; image 1 of NAME is
NAME/NAME_0001.jpg. Knoche et al., "Cross-Quality LFW", FG 2021, degrade some of the images and pair good images with
poor ones; xqlfw_pairs.txt is written likewise.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from facerts.benchmarks.listed import build_benchmark, numbered_lines
from facerts.benchmarks.pair_benchmark import PairBenchmark
from facerts.errors import DataError

PAIRS, XQLFW_PAIRS = "pairs.txt", "xqlfw_pairs.txt"
# Aligned crops are preferred to photos.
XQLFW_IMAGES = ("xqlfw_aligned_112", "lfw_original_imgs_min_qual0.85variant11")


def load_lfw(folder: str | Path) -> PairBenchmark:
    """Load LFW, or any benchmark in its layout."""
    folder = Path(folder)
    if not (folder / PAIRS).is_file():
        raise DataError(f"{folder}: no {PAIRS}, the list of pairs of LFW's view 2")
    return _load(folder.name, folder, PAIRS, "")


def load_xqlfw(folder: str | Path) -> PairBenchmark:
    """Load cross-quality LFW: aligned crops if there are any, or else photos."""
    folder = Path(folder)
    images = next((name for name in XQLFW_IMAGES if (folder / name).is_dir()), None)
    if images is None:
        raise DataError(
            f"{folder}: neither {XQLFW_IMAGES[0]} nor {XQLFW_IMAGES[1]}, the images of {XQLFW_PAIRS}"
        )
    return _load("xqlfw", folder, XQLFW_PAIRS, f"{images}/")


def _load(name: str, folder: Path, listing_name: str, images: str) -> PairBenchmark:
    listing = folder / listing_name
    lines = list(numbered_lines(listing))
    header = lines.pop(0)[1] if lines else ""
    try:
        folds, per_class = (int(number) for number in header.split())
    except ValueError as error:
        raise DataError(
            f"{listing}, line 1: {header!r} is not the number of folds and of pairs per fold and class"
        ) from error
    if len(lines) != 2 * folds * per_class:
        raise DataError(
            f"{listing}: {len(lines)} pairs, but its first line announces {folds} x 2 x {per_class}; it is truncated"
        )
    subjects: dict[str, str] = {}

    def key(person: str, number: str, where: str) -> str:
        try:
            path = f"{images}{person}/{person}_{int(number):04d}.jpg"
        except ValueError as error:
            raise DataError(f"{where}: {number!r} is not the number of an image") from error
        subjects[path] = person
        return path

    pairs: list[tuple[str, str]] = []
    same: list[bool] = []
    for row, line in lines:
        where, fields = f"{listing}, line {row}", line.split()
        if len(fields) not in (3, 4):
            raise DataError(f"{where}: {line!r} is neither NAME N M nor NAME N OTHER M")
        person, first, *others, second = fields
        pairs.append((key(person, first, where), key(others[0] if others else person, second, where)))
        same.append(not others)
    return build_benchmark(
        name,
        folder,
        pairs,
        same,
        np.repeat(np.arange(folds, dtype=np.int64), 2 * per_class),
        listing=listing_name,
        subjects=subjects,
    )
