"""Benchmarks from lists of pairs: what all layouts have in common, and users' own lists."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.folder import Files
from facerts.datasets.pair_benchmark import FOLDS, PairBenchmark
from facerts.datasets.pair_rows import ListedPair, read_rows
from facerts.errors import DataError

PAIR_LIST_SUFFIXES = frozenset({".csv", ".tsv", ".txt"})


def load_pair_list(path: str | Path, images: str | Path | None = None, *, name: str | None = None) -> PairBenchmark:
    """Load a list of pairs in any of the layouts in docs/evaluation.md.

    Pairs without folds are in ten equal runs, of genuine and of impostor pairs if there are ten of each.

    Args:
        images: folder that the list's paths are relative to; by default the list's own.
    """
    path = Path(path)
    root = path.parent if images is None else Path(images)
    if not root.is_dir():
        raise DataError(f"{root}: not a folder; name the one that the paths in {path.name} are relative to")
    return build_benchmark(name or path.stem, root, path, *read_labeled(path))


def read_labeled(path: Path) -> tuple[list[ListedPair], list[str]]:
    """The pairs of a list that says which are genuine, and notes on what of it is not used."""
    rows, unused = read_rows(path, labeled=True)
    for row in rows:
        if row.error is not None:
            raise DataError(row.error)
    return rows, [f"Columns {', '.join(unused)} of {path.name} are not used."] if unused else []


def build_benchmark(
    name: str,
    root: Path,
    listing: Path,
    rows: Sequence[ListedPair],
    notes: Sequence[str] = (),
    *,
    published: int | None = None,
) -> PairBenchmark:
    """A benchmark of the pairs that a list has of images in a folder.

    Notes say if it has another number of pairs than ``published``, and if its labels and its people disagree.
    """
    keys = list(dict.fromkeys(key for row in rows for key in (row.first, row.second)))
    if not keys:
        raise DataError(f"{listing}: it lists no pairs")
    check_present(keys, [key for key in keys if not os.path.isfile(root / key)], root, listing)
    notes = [*notes, *([] if published is None else count_notes(len(rows), published, "pairs"))]
    same = np.array([row.same is True for row in rows])
    people: dict[str, str] = {}
    unnamed = sum(row.people is None for row in rows)
    if not unnamed:
        people = _people_of(listing, rows)
        contradictions = sum((people[row.first] == people[row.second]) != row.same for row in rows)
        if contradictions:
            notes.append(
                f"In {contradictions} of {len(rows)} pairs {listing.name} and the people's names disagree on whether "
                "both images are of the same person."
            )
    elif unnamed < len(rows):
        notes.append(f"{unnamed} of {len(rows)} pairs do not name their people, so people are ignored.")
    number = {key: row for row, key in enumerate(keys)}
    return PairBenchmark(
        name,
        Files(name, root, keys, [people[key] for key in keys] if people else None),
        np.array([(number[row.first], number[row.second]) for row in rows], dtype=np.int64),
        same,
        _folds(listing, [row.fold for row in rows], same),
        tuple(notes),
    )


def check_present(listed: Sequence[str], missing: Sequence[str], folder: Path, listing: Path) -> None:
    """Refuse a list if images that it names are missing in a folder."""
    if missing:
        raise DataError(
            f"{folder}: {len(missing)} of {len(listed)} images that {listing.name} lists are missing, the first is "
            f"{missing[0]}"
        )


def equal_folds(count: int, where: str) -> NDArray[np.int64]:
    """Folds for pairs whose list has none: ten equal runs, in order."""
    if count < FOLDS:
        raise DataError(f"{where}: {count} pairs are too few for {FOLDS} folds")
    sizes = np.diff(np.linspace(0, count, FOLDS + 1).round().astype(int))
    return np.repeat(np.arange(FOLDS, dtype=np.int64), sizes)


def count_notes(actual: int, published: int, what: str) -> tuple[str, ...]:
    """A note if a count differs from the published one."""
    if actual == published:
        return ()
    return (f"There are {actual:,} {what} here, but {published:,} in the published benchmark.",)


def _folds(listing: Path, listed: Sequence[int | None], same: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The fold of each pair, from 0; genuine or impostor pairs without any get equal runs."""
    folds = np.array([-1 if fold is None else fold for fold in listed], dtype=np.int64)
    missing = folds < 0
    if missing.all() and min(same.sum(), (~same).sum()) < FOLDS:
        return equal_folds(len(folds), str(listing))
    for of_class in (same, ~same):
        if missing[of_class].any():
            folds[of_class] = equal_folds(int(of_class.sum()), str(listing))
    numbers, folds = np.unique(folds, return_inverse=True)
    if not 2 <= len(numbers) <= FOLDS:
        raise DataError(f"{listing}: the number of folds is {len(numbers)}; use 2 to {FOLDS}, or none")
    return folds


def _people_of(listing: Path, rows: Sequence[ListedPair]) -> dict[str, str]:
    people: dict[str, str] = {}
    for row in rows:
        for key, person in zip((row.first, row.second), row.people or (), strict=True):
            if people.setdefault(key, person) != person:
                raise DataError(
                    f"{listing}, line {row.line}: {key} is of {person} here, but of {people[key]} above; fix one "
                    "of them"
                )
    return people
