"""Labeled Faces in the Wild: ``pairs.txt`` over a folder by person.

Huang et al., "Labeled Faces in the Wild", 2007, view 2. The first line of pairs.txt gives folds and pairs per
fold and class; "NAME 1 4" is a genuine pair, "NAME 1 OTHER 2" an impostor pair; picture 1 of NAME is
NAME/NAME_0001.jpg.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from facerts.benchmarks.pairs import PairBenchmark
from facerts.data.folder import Files
from facerts.errors import DataError

PAIRS = "pairs.txt"


def load_lfw(folder: str | Path) -> PairBenchmark:
    """LFW, or any set in its layout.

    Raises:
        DataError: pairs.txt is missing or broken (the line is named), or names pictures that are not there.
    """
    folder = Path(folder)
    listing = folder / PAIRS
    if not listing.is_file():
        raise DataError(f"{folder}: no {PAIRS} here; LFW's view 2 lists its pairs in it")
    header, *lines = listing.read_text(encoding="utf-8").splitlines()
    try:
        folds, per_class = (int(number) for number in header.split())
    except ValueError as error:
        raise DataError(
            f"{listing}, line 1: {header!r} is not the number of folds and of pairs per fold and class"
        ) from error
    lines = [line for line in lines if line.strip()]
    if len(lines) != 2 * folds * per_class:
        raise DataError(
            f"{listing}: {len(lines)} pairs, but its first line promises {folds} x 2 x {per_class}; it is truncated"
        )
    keys: dict[str, int] = {}
    people: list[str] = []

    def number(person: str, picture: str, where: str) -> int:
        try:
            key = f"{person}/{person}_{int(picture):04d}.jpg"
        except ValueError as error:
            raise DataError(f"{where}: {picture!r} is not the number of a picture") from error
        if key not in keys:
            keys[key] = len(keys)
            people.append(person)
        return keys[key]

    pairs: list[tuple[int, int]] = []
    same: list[bool] = []
    for row, line in enumerate(lines, 2):
        where, fields = f"{listing}, line {row}", line.split()
        if len(fields) == 3:
            person, first, second = fields
            pairs.append((number(person, first, where), number(person, second, where)))
        elif len(fields) == 4:
            person, first, other, second = fields
            pairs.append((number(person, first, where), number(other, second, where)))
        else:
            raise DataError(f"{where}: {line!r} is neither NAME N M nor NAME N OTHER M")
        same.append(len(fields) == 3)
    missing = [key for key in keys if not (folder / key).is_file()]
    if missing:
        raise DataError(
            f"{folder}: {len(missing)} of {len(keys)} pictures that {PAIRS} names "
            f"are missing, the first is {missing[0]}"
        )
    return PairBenchmark(
        folder.name,
        Files(folder.name, folder, list(keys), people),
        np.array(pairs, dtype=np.int64),
        np.array(same, dtype=bool),
        np.repeat(np.arange(folds, dtype=np.int64), 2 * per_class),
    )
