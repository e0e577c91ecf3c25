"""Labeled Faces in the Wild: ``pairs.txt`` over a folder by person.

Huang et al., "Labeled Faces in the Wild", 2007, view 2. The first line of pairs.txt gives the number of folds and of
pairs per fold and class; "NAME 1 4" is a genuine pair, "NAME 1 OTHER 2" an impostor pair; image 1 of NAME is
NAME/NAME_0001.jpg.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from facerts.benchmarks.listed import build_benchmark, numbered_lines
from facerts.benchmarks.pairs import PairBenchmark
from facerts.errors import DataError

PAIRS = "pairs.txt"


def load_lfw(folder: str | Path) -> PairBenchmark:
    """Load LFW, or any benchmark in its layout.

    Raises:
        DataError: pairs.txt is missing or broken (the line is named), or lists missing images.
    """
    folder = Path(folder)
    listing = folder / PAIRS
    if not listing.is_file():
        raise DataError(f"{folder}: no {PAIRS}, the list of pairs of LFW's view 2")
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
            name = f"{person}/{person}_{int(number):04d}.jpg"
        except ValueError as error:
            raise DataError(f"{where}: {number!r} is not the number of an image") from error
        subjects[name] = person
        return name

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
        folder.name,
        folder,
        pairs,
        same,
        np.repeat(np.arange(folds, dtype=np.int64), 2 * per_class),
        listing=PAIRS,
        subjects=subjects,
    )
