"""Celebrities in Frontal-Profile: frontal against frontal, and frontal against profile.

Sengupta et al., "Frontal to profile face verification in the wild", WACV 2016. ``Protocol/Pair_list_F.txt`` and
``Pair_list_P.txt`` number the frontal and the profile pictures; ``Protocol/Split/FF/01/same.txt`` pairs them by
these numbers, fold by fold. A person is a folder of ``Data/Images``.
"""

from __future__ import annotations

import posixpath
from pathlib import Path

from facerts.benchmarks.listed import FOLDS, build_benchmark, count_notes, numbered_lines
from facerts.benchmarks.pairs import PairBenchmark
from facerts.errors import DataError

FRONTAL, PROFILE = "Protocol/Pair_list_F.txt", "Protocol/Pair_list_P.txt"
PUBLISHED_PAIRS = 7000


def load_cfp(folder: str | Path) -> list[PairBenchmark]:
    """CFP as its authors hand it out: ``cfp_ff`` and ``cfp_fp``.

    Raises:
        DataError: a list is missing or broken (the line is named), or names pictures that are not there.
    """
    folder = Path(folder)
    frontal, profile = _numbered_pictures(folder, FRONTAL), _numbered_pictures(folder, PROFILE)
    return [
        _load(folder, "cfp_ff", "FF", (frontal, frontal), (FRONTAL, FRONTAL)),
        _load(folder, "cfp_fp", "FP", (frontal, profile), (FRONTAL, PROFILE)),
    ]


def _load(
    folder: Path, name: str, part: str, pictures: tuple[dict[str, str], ...], lists: tuple[str, str]
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
                        f"{listing}, line {row}: {line!r} is not two numbers with a comma between"
                    )
                for number, known, source in zip(numbers, pictures, lists, strict=True):
                    if number not in known:
                        raise DataError(f"{listing}, line {row}: {source} has no picture {number!r}")
                pairs.append((pictures[0][numbers[0]], pictures[1][numbers[1]]))
                same.append(flag)
                folds.append(fold)
    return build_benchmark(
        name,
        folder,
        pairs,
        same,
        folds,
        listing=split,
        subjects={key: _subject(key) for pair in pairs for key in pair},
        notes=count_notes(len(pairs), PUBLISHED_PAIRS, "pairs"),
    )


def _numbered_pictures(folder: Path, name: str) -> dict[str, str]:
    """From a picture's number to its path below the folder."""
    listing = folder / name
    pictures: dict[str, str] = {}
    for row, line in numbered_lines(listing):
        number, *path = line.split(maxsplit=1)
        # The paths start from the folder of the list.
        key = posixpath.normpath(posixpath.join(posixpath.dirname(name), *path))
        if not number.isdigit() or key.count("/") < 2 or key.startswith(("/", "..")):
            raise DataError(
                f"{listing}, line {row}: {line!r} is not a number and a path as ../Data/Images/001/frontal/01.jpg"
            )
        if number in pictures:
            raise DataError(f"{listing}, line {row}: the number {number} stands there twice")
        pictures[number] = key
    return pictures


def _subject(key: str) -> str:
    return key.split("/")[-3]
