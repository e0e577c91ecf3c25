"""Benchmarks from lists of pairs: helpers shared by all layouts, and users' own lists."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.benchmarks.pair_benchmark import PairBenchmark
from facerts.datasets.folder import Files
from facerts.errors import DataError
from facerts.io.files import regular

FOLDS = 10
LIST_SUFFIXES = frozenset({".csv", ".txt"})

_REQUIRED = ("first", "second", "same")
_OPTIONAL = ("fold", "first_subject", "second_subject")
_FLAGS = {"0": False, "1": True, "false": False, "true": True}


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The non-blank lines of a text file, stripped, with their numbers from 1."""
    try:
        with open(path, encoding="utf-8-sig", opener=regular) as file:
            for number, line in enumerate(file, 1):
                if line := line.strip():
                    yield number, line
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text; save the list as UTF-8") from error


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
    path: str | Path, *, name: str | None = None, subject_of: Callable[[str], str] | None = None
) -> PairBenchmark:
    """Load a user's own pairs from a .csv or .txt file.

    A .csv has a header with ``first``, ``second``, ``same`` (0, 1, true, false) and, optionally, ``fold`` (0 … 9),
    ``first_subject`` and ``second_subject``. A .txt has "PATH PATH LABEL" or "LABEL PATH PATH" on each line, like
    AgeDB-30; the label is 0 or 1. Paths are relative to the file's folder. Without folds, ten equal runs of pairs are
    the folds. ``subject_of`` a path is its subject, for lists that do not name subjects.
    """
    path = Path(path)
    if path.suffix.lower() not in LIST_SUFFIXES:
        raise DataError(f"{path}: a list of pairs must be a .csv or .txt file")
    rows = _read_csv(path) if path.suffix.lower() == ".csv" else _read_txt(path)
    notes: list[str] = []
    subjects: dict[str, str] | None = None
    unnamed = sum(not (row.first_subject and row.second_subject) for row in rows)
    if subject_of is not None:
        subjects = {key: subject_of(key) for row in rows for key in (row.first, row.second)}
    elif rows and not unnamed:
        subjects = _subjects(rows)
    elif unnamed < len(rows):
        notes.append(f"{unnamed} of {len(rows)} pairs do not name their subjects, so subjects are ignored.")
    if any(row.fold is not None for row in rows):
        folds = np.array([row.fold for row in rows], dtype=np.int64)
        if len(np.unique(folds)) < 2:
            raise DataError(f"{path}: all pairs are in fold {folds[0]}; use at least two folds, or none")
    else:
        folds = equal_folds(len(rows), str(path))
    return build_benchmark(
        name or path.stem,
        path.parent,
        [(row.first, row.second) for row in rows],
        [row.same for row in rows],
        folds,
        listing=path.name,
        subjects=subjects,
        notes=notes,
    )


@dataclass(frozen=True)
class _ListedPair:
    """A line of a list of pairs; ``where`` names it in errors."""

    where: str
    first: str
    second: str
    same: bool
    fold: int | None = None
    first_subject: str = ""
    second_subject: str = ""


def _flag(text: str, where: str) -> bool:
    flag = _FLAGS.get(text.strip().lower())
    if flag is None:
        raise DataError(f"{where}: {text!r} does not say whether the pair is the same person; write 0 or 1")
    return flag


def _read_txt(path: Path) -> list[_ListedPair]:
    rows: list[_ListedPair] = []
    label_first: bool | None = None
    for number, line in numbered_lines(path):
        where, fields = f"{path}, line {number}", line.split()
        if len(fields) != 3:
            raise DataError(
                f"{where}: {line[:100]!r} is neither PATH PATH LABEL nor LABEL PATH PATH; "
                "paths with spaces need a .csv"
            )
        if label_first is None:
            label_first = fields[0] in {"0", "1"}
        first, second, label = (fields[1], fields[2], fields[0]) if label_first else fields
        rows.append(_ListedPair(where, first, second, _flag(label, where)))
    return rows


def _read_csv(path: Path) -> list[_ListedPair]:
    try:
        with open(path, encoding="utf-8-sig", newline="", opener=regular) as file:
            reader = csv.DictReader(file)
            # Read while the file is open: an empty file is asked for its header again.
            columns = reader.fieldnames or ()
            unknown = [column for column in columns if column not in (*_REQUIRED, *_OPTIONAL)]
            missing = [column for column in _REQUIRED if column not in columns]
            if unknown or missing or len(set(columns)) != len(columns):
                raise DataError(
                    f"{path}, line 1: the columns {','.join(columns)[:100]!r} are not {','.join(_REQUIRED)} and, "
                    f"optionally, {', '.join(_OPTIONAL)}"
                )
            lines = [(f"{path}, line {reader.line_num}", line) for line in reader]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a comma-separated table in UTF-8 ({error})") from error
    rows: list[_ListedPair] = []
    for where, line in lines:
        if None in line or None in line.values():
            raise DataError(f"{where}: the header has {len(columns)} columns, but this line does not")
        if not (line["first"] and line["second"]):
            raise DataError(f"{where}: a pair needs two paths")
        fold = line.get("fold")
        if fold is not None and fold not in set("0123456789"):
            raise DataError(f"{where}: fold {fold!r} is not a whole number from 0 to 9")
        rows.append(
            _ListedPair(
                where,
                line["first"],
                line["second"],
                _flag(line["same"], where),
                None if fold is None else int(fold),
                line.get("first_subject", ""),
                line.get("second_subject", ""),
            )
        )
    return rows


def _subjects(rows: Sequence[_ListedPair]) -> dict[str, str]:
    subjects: dict[str, str] = {}
    for row in rows:
        for key, subject in ((row.first, row.first_subject), (row.second, row.second_subject)):
            if subjects.setdefault(key, subject) != subject:
                raise DataError(
                    f"{row.where}: {key} is of {subject} here, but of {subjects[key]} above; fix one of them"
                )
        if (row.first_subject == row.second_subject) != row.same:
            raise DataError(f"{row.where}: same contradicts the subjects' names; fix one of them")
    return subjects
