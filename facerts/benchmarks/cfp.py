"""Celebrities in Frontal-Profile: frontal against frontal, and frontal against profile.

Sengupta et al., "Frontal to profile face verification in the wild", WACV 2016. ``Protocol/Pair_list_F.txt`` and
``Pair_list_P.txt`` number the frontal and the profile images; ``Protocol/Split/FF/01/same.txt`` lists pairs of these
numbers, fold by fold. Each person has a folder in ``Data/Images``.
"""

from __future__ import annotations

import posixpath
from pathlib import Path

from facerts.benchmarks.list_rows import numbered_lines
from facerts.benchmarks.listed import FOLDS, build_benchmark, count_notes
from facerts.benchmarks.pair_benchmark import PairBenchmark
from facerts.errors import DataError

FRONTAL, PROFILE = "Protocol/Pair_list_F.txt", "Protocol/Pair_list_P.txt"
PUBLISHED_PAIRS = 7000


def load_cfp(folder: str | Path) -> list[PairBenchmark]:
    """CFP as its authors distribute it: ``cfp_ff`` and ``cfp_fp``."""
    folder = Path(folder)
    frontal, profile = _numbered_images(folder, FRONTAL), _numbered_images(folder, PROFILE)
    return [
        _load(folder, "cfp_ff", "FF", (frontal, frontal), (FRONTAL, FRONTAL)),
        _load(folder, "cfp_fp", "FP", (frontal, profile), (FRONTAL, PROFILE)),
    ]


def _load(
    folder: Path, name: str, part: str, images: tuple[dict[str, str], ...], lists: tuple[str, str]
) -> PairBenchmark:
    pairs: list[tuple[str, str]] = []
    same: list[bool] = []
    folds: list[int] = []
    split = f"Protocol/Split/{part}"
    for fold in range(FOLDS):
        for file, flag in (("same.txt", True), ("diff.txt", False)):
            listing = folder / split / f"{fold + 1:02d}" / file
            for row, line in numbered_lines(listing):
                numbers = [number.strip() for number in line.split(",")]
                if len(numbers) != 2:
                    raise DataError(
                        f"{listing}, line {row}: {line!r} is not two numbers separated by a comma"
                    )
                for number, known, source in zip(numbers, images, lists, strict=True):
                    if number not in known:
                        raise DataError(f"{listing}, line {row}: {source} has no image {number!r}")
                pairs.append((images[0][numbers[0]], images[1][numbers[1]]))
                same.append(flag)
                folds.append(fold)
    return build_benchmark(
        name,
        folder,
        pairs,
        same,
        folds,
        listing=split,
        subjects={key: key.split("/")[-3] for pair in pairs for key in pair},
        notes=count_notes(len(pairs), PUBLISHED_PAIRS, "pairs"),
    )


def _numbered_images(folder: Path, name: str) -> dict[str, str]:
    listing = folder / name
    images: dict[str, str] = {}
    for row, line in numbered_lines(listing):
        number, *path = line.split(maxsplit=1)
        # Paths are relative to the folder of the list.
        key = posixpath.normpath(posixpath.join(posixpath.dirname(name), *path))
        if not number.isdigit() or key.count("/") < 2 or key.startswith(("/", "..")):
            raise DataError(
                f"{listing}, line {row}: {line!r} is not a number and a path like ../Data/Images/001/frontal/01.jpg"
            )
        if number in images:
            raise DataError(f"{listing}, line {row}: the number {number} is listed twice")
        images[number] = key
    return images
