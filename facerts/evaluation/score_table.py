"""Qualities that were computed elsewhere, by the names of their images."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from facerts.embedding.embedding_table import NAMES, EmbeddingTable
from facerts.embedding.outputs import FaceOutputs, Scores
from facerts.errors import DataError
from facerts.io.csv_file import read_csv

NAME_COLUMNS = ("image", *NAMES)
QUALITY = "quality"


def read_scores(path: Path, column: str | None = None) -> EmbeddingTable:
    """Read a CSV file with a row for each image: a table without embeddings, with scores as extras by their columns.

    The first row names the columns: one of ``NAME_COLUMNS`` and one or more scores, higher is better. ``column`` is the
    only score to read. Without it, that is ``quality`` if there is such a column, as in the rows that `facerts score`
    writes; otherwise every column of numbers is a score.
    """
    header, rows = read_csv(path)
    named = next((name for name in NAME_COLUMNS if name in header), None)
    if named is None:
        raise DataError(
            f"{path}: no column {' or '.join(map(repr, NAME_COLUMNS))}, only {', '.join(header)}; name the images"
        )
    if not rows:
        raise DataError(f"{path}: it has no rows")
    if column is None and QUALITY in header:
        column = QUALITY
    wanted = [name for name in header if name != named] if column is None else [column]
    if column is not None and (column not in header or column == named):
        raise DataError(f"{path}: no score {column!r}, only {', '.join(header)}")
    scores = {name: _numbers(path, name, rows, header, named, required=column is not None) for name in wanted}
    columns = {name: values for name, values in scores.items() if values is not None}
    if not columns:
        raise DataError(f"{path}: no column of numbers beside {named!r}")
    place = header.index(named)
    no_embedding = np.empty((len(rows), 0), dtype=np.float32)
    return EmbeddingTable(path, [row[place] for row in rows], FaceOutputs(no_embedding, extras=columns))


def _numbers(
    path: Path, name: str, rows: list[list[str]], header: list[str], named: str, *, required: bool
) -> Scores | None:
    """A column as numbers; None if it is another kind of column."""
    place, names = header.index(name), header.index(named)
    values = np.empty(len(rows))
    for number, row in enumerate(rows):
        try:
            values[number] = float(row[place])
        except ValueError as error:
            if not required and number == 0:
                return None
            raise DataError(
                f"{path}: {name} of {row[names]} is {row[place]!r}, not a number; remove such rows or compute them "
                "again"
            ) from error
    with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite, and is refused
        scores = values.astype(np.float32)
    broken = np.flatnonzero(~np.isfinite(scores))
    if len(broken):
        raise DataError(
            f"{path}: {name} of {rows[broken[0]][names]} is not a finite number; remove such rows or compute them again"
        )
    return scores
