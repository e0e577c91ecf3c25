"""Lists of pairs of images to verify, and their results; a bad row is a result with an error."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from facerts.benchmarks.listed import numbered_lines
from facerts.errors import DataError
from facerts.scoring.prepare import storable
from facerts.scoring.scorer import Scorer
from facerts.scoring.verify import DEFAULT_FMR, Verification

DELIMITERS = {".csv": ",", ".tsv": "\t"}
LABELS = frozenset({"0", "1"})


@dataclass(frozen=True, slots=True)
class ListedPair:
    """A row of a list: the paths of two images, or why there are none."""

    first: str = ""
    second: str = ""
    error: str | None = None


def read_pair_list(path: str | Path) -> list[ListedPair]:
    """The pairs of a list, with an error in place of a row that is not one.

    A .csv or .tsv has two columns, or a header that names two of its columns ``first`` and ``second``. A .txt has
    "PATH PATH" on each line, with or without a label, 0 or 1, at its beginning or end. Paths are relative to the list's
    own folder.

    Raises:
        DataError: the list cannot be read, is empty, or is of another kind.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in {*DELIMITERS, ".txt"}:
        raise DataError(f"{path}: a list of pairs must be a .csv, .tsv or .txt file")
    lines = list(numbered_lines(path))
    columns: tuple[int, ...] | None = None
    if suffix in DELIMITERS and lines:
        header = _split(lines[0][1], suffix)
        if {"first", "second"} <= set(header):
            columns = header.index("first"), header.index("second")
            del lines[0]
    if not lines:
        raise DataError(f"{path}: the list has no pairs")
    return [_pair(path, number, _split(line, suffix), columns) for number, line in lines]


def verify_list(
    scorer: Scorer,
    listed: Sequence[ListedPair],
    *,
    fmr: float = DEFAULT_FMR,
    threshold: float | None = None,
    keep: float | None = None,
    min_quality: float | None = None,
    progress: str = "",
) -> Iterator[Verification]:
    """The result of each row of a list, in order; see ``Scorer.verify_pairs``.

    Raises:
        ModelError: see ``Scorer.match_rule``.
    """
    rule = scorer.match_rule(fmr=fmr, threshold=threshold, keep=keep, min_quality=min_quality)
    pairs = [(row.first, row.second) for row in listed if row.error is None]
    results = scorer.verify_pairs(
        pairs, fmr=fmr, threshold=threshold, keep=keep, min_quality=min_quality, progress=progress
    )
    for row in listed:
        yield next(results) if row.error is None else rule.failed(row.first, row.second, row.error)


def _split(line: str, suffix: str) -> list[str]:
    """The fields of a line; none if its quotes are broken."""
    if suffix not in DELIMITERS:
        return line.split()
    try:
        (fields,) = csv.reader([line], delimiter=DELIMITERS[suffix], strict=True)
    except csv.Error:
        return []
    return fields


def _pair(path: Path, number: int, fields: list[str], columns: tuple[int, ...] | None) -> ListedPair:
    if columns is not None:
        fields = [fields[column] for column in columns if column < len(fields)]
    elif path.suffix.lower() == ".txt" and len(fields) == 3:
        fields = fields[1:] if fields[0] in LABELS else fields[:2] if fields[2] in LABELS else fields
    if len(fields) != 2 or not all(fields):
        return ListedPair(error=storable(f"{path}, line {number}: not the paths of two images"))
    first, second = (str(path.parent / field) for field in fields)
    return ListedPair(first, second)
