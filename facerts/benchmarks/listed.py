"""Benchmarks from lists of pairs: helpers shared by all layouts, and users' own lists."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.benchmarks.list_rows import ListedPair, read_rows
from facerts.benchmarks.pair_benchmark import PairBenchmark
from facerts.datasets.folder import Files
from facerts.errors import DataError

FOLDS = 10
LIST_SUFFIXES = frozenset({".csv", ".tsv", ".txt"})


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


def build_benchmark(
    name: str,
    root: Path,
    pairs: Sequence[tuple[str, str]],
    same: Sequence[bool],
    folds: ArrayLike,
    *,
    listing: str,
    subjects: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> PairBenchmark:
    """Build a benchmark from pairs of image files; a note is added if ``same`` and ``subjects`` disagree."""
    keys = list(dict.fromkeys(key for pair in pairs for key in pair))
    if not keys:
        raise DataError(f"{root}: {listing} lists no pairs")
    missing = [key for key in keys if not os.path.isfile(root / key)]
    if missing:
        raise DataError(
            f"{root}: {len(missing)} of {len(keys)} images that {listing} lists "
            f"are missing, the first is {missing[0]}"
        )
    notes = list(notes)
    if subjects is not None:
        contradictions = sum(
            (subjects[first] == subjects[second]) != flag
            for (first, second), flag in zip(pairs, same, strict=True)
        )
        if contradictions:
            notes.append(
                f"In {contradictions} of {len(pairs)} pairs {listing} and the subjects' names disagree on whether "
                "both images are of the same person."
            )
    number = {key: row for row, key in enumerate(keys)}
    return PairBenchmark(
        name,
        Files(name, root, keys, None if subjects is None else [subjects[key] for key in keys]),
        np.array([(number[first], number[second]) for first, second in pairs], dtype=np.int64),
        np.array(same, dtype=bool),
        np.asarray(folds, dtype=np.int64),
        tuple(notes),
    )


def load_pair_list(
    path: str | Path,
    images: str | Path | None = None,
    *,
    name: str | None = None,
    subject_of: Callable[[str], str] | None = None,
) -> PairBenchmark:
    """Load a list of pairs in any of the layouts in docs/evaluation.md.

    Pairs without folds are in ten equal runs, of genuine and of impostor pairs if there are ten of each.

    Args:
        images: folder that the list's paths are relative to; by default the list's own.
        subject_of: a path's subject, for lists that do not name subjects.
    """
    path = Path(path)
    root = path.parent if images is None else Path(images)
    if not root.is_dir():
        raise DataError(f"{root}: not a folder; name the one that the paths in {path.name} are relative to")
    rows, unused = read_rows(path, labeled=True)
    for row in rows:
        if row.error is not None:
            raise DataError(row.error)
    notes = [f"Columns {', '.join(unused)} of {path.name} are not used."] if unused else []
    subjects: dict[str, str] | None = None
    unnamed = sum(row.people is None for row in rows)
    if subject_of is not None:
        subjects = {key: subject_of(key) for row in rows for key in (row.first, row.second)}
    elif not unnamed:
        subjects = _subjects(path, rows)
    elif unnamed < len(rows):
        notes.append(f"{unnamed} of {len(rows)} pairs do not name their subjects, so subjects are ignored.")
    same = [bool(row.same) for row in rows]
    return build_benchmark(
        name or path.stem,
        root,
        [(row.first, row.second) for row in rows],
        same,
        _folds(path, [row.fold for row in rows], np.array(same)),
        listing=path.name,
        subjects=subjects,
        notes=notes,
    )


def _folds(path: Path, listed: Sequence[int | None], same: NDArray[np.bool_]) -> NDArray[np.int64]:
    if None in listed:
        folds = equal_folds(len(same), str(path))
        if min(same.sum(), (~same).sum()) >= FOLDS:
            for flag in (same, ~same):
                folds[flag] = equal_folds(int(flag.sum()), str(path))
        return folds
    numbers, folds = np.unique(np.array(listed, dtype=np.int64), return_inverse=True)
    if not 2 <= len(numbers) <= FOLDS:
        raise DataError(f"{path}: the number of folds is {len(numbers)}; use 2 to {FOLDS}, or none")
    return folds


def _subjects(path: Path, rows: Sequence[ListedPair]) -> dict[str, str]:
    subjects: dict[str, str] = {}
    for row in rows:
        for key, subject in zip((row.first, row.second), row.people or (), strict=True):
            if subjects.setdefault(key, subject) != subject:
                raise DataError(
                    f"{path}, line {row.line}: {key} is of {subject} here, but of {subjects[key]} above; "
                    "fix one of them"
                )
    return subjects
