"""Rows of embeddings that are almost equal: repeats among some, and all pairs of many."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from facerts.embedding.search import Backend, find
from facerts.errors import Error, MissingExtraError
from facerts.io.progress import progress_bar

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

# Rows that are compared with each other at a time: sixteen megabytes of cosines.
BLOCK = 2048
# Rows that are taken into memory for a search.
AT_ONCE = 1 << 16


def check_threshold(value: float, name: str) -> None:
    """Refuse a least cosine that would find nothing, or unrelated pictures.

    Raises:
        Error: it is not above 0, or above 1.
    """
    if not 0 < value <= 1:
        raise Error(f"{name} {value:g} is no cosine to look for; give one above 0, at most 1")


class Repeats(NamedTuple):
    """Which rows repeat others.

    Attributes:
        of: ``(N,)`` the row that each one repeats; −1 where it repeats none and is kept.
        cosine: ``(N,)`` to that row.
    """

    of: Rows
    cosine: Floats


class Similar(NamedTuple):
    """Pairs of rows, the first below the second, and their cosines."""

    first: Rows
    second: Rows
    cosine: Floats


class Chosen:
    """Some rows of embeddings, taken from the disk as they are asked for.

    Args:
        embedding: ``(N, d)``.
        rows: which of them.
    """

    def __init__(self, embedding: Floats, rows: Rows) -> None:
        self.shape = (len(rows), embedding.shape[1])
        self._embedding = embedding
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, part: slice | Rows) -> Floats:
        return np.asarray(self._embedding[self._rows[part]])


def repeats(embedding: Floats | Chosen, threshold: float, backend: Backend = "numpy") -> Repeats:
    """Go through rows in order and keep each that is not almost equal to one kept before.

    Args:
        embedding: ``(N, d)`` of unit length, those to be preferred first.
        threshold: the least cosine of two that are almost equal.
        backend: of the search.
    """
    of = np.full(len(embedding), -1, dtype=np.int64)
    cosine = np.zeros(len(embedding), dtype=np.float32)
    kept = np.empty(0, dtype=np.int64)
    for start in range(0, len(embedding), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(embedding)))
        if len(kept):
            nearest, products = _nearest(embedding, kept, rows, backend)
            known = products >= threshold
            of[rows[known]], cosine[rows[known]] = nearest[known], products[known]
            rows = rows[~known]
        _among(embedding, rows, threshold, of, cosine)
        kept = np.concatenate([kept, rows[of[rows] < 0]])
    return Repeats(of, cosine)


def similar(
    embedding: Floats | Chosen, threshold: float, text: str, backend: Backend = "numpy"
) -> Iterator[Similar]:
    """All pairs of rows that are at least so similar, exactly, block by block, with a progress bar.

    Args:
        embedding: ``(N, d)`` of unit length; it may be mapped from the disk. FAISS takes it all into memory.
        threshold: the least cosine.
        text: beside the bar.
        backend: of the search.

    Raises:
        MissingExtraError: FAISS is asked for and not installed.
    """
    blocks = _by_faiss if backend == "faiss" else _by_numpy
    with progress_bar() as bar:
        count = len(embedding)
        # Each row is compared with all before it, so that the pairs tell the time that is left.
        task = bar.add_task(text, total=count * (count - 1) // 2, unit="pairs")
        for compared, pairs in blocks(embedding, threshold):
            yield pairs
            bar.advance(task, compared)


def _nearest(embedding: Floats | Chosen, kept: Rows, rows: Rows, backend: Backend) -> tuple[Rows, Floats]:
    """The kept row that is most like each of some rows, and its cosine."""
    asked = np.asarray(embedding[rows])
    nearest = np.full(len(rows), -1, dtype=np.int64)
    best = np.full(len(rows), -np.inf, dtype=np.float32)
    for start in range(0, len(kept), AT_ONCE):
        some = kept[start : start + AT_ONCE]
        found = find(embedding[some], asked, 1, backend)
        better = found.scores[:, 0] > best
        nearest[better], best[better] = some[found.templates[better, 0]], found.scores[better, 0]
    return nearest, best


def _among(embedding: Floats | Chosen, rows: Rows, threshold: float, of: Rows, cosine: Floats) -> None:
    """Note which of some rows repeat an earlier one of them that is kept."""
    block = np.asarray(embedding[rows])
    products = block @ block.T
    close = products >= threshold
    for place in range(len(rows)):
        if of[rows[place]] >= 0:
            continue
        again = np.flatnonzero(close[place, place + 1 :]) + place + 1
        of[rows[again]] = rows[place]
        cosine[rows[again]] = products[place, again]


def _by_numpy(embedding: Floats | Chosen, threshold: float) -> Iterator[tuple[int, Similar]]:
    for top in range(0, len(embedding), BLOCK):
        rows = np.asarray(embedding[top : top + BLOCK])
        for left in range(0, top + 1, BLOCK):
            columns = rows if left == top else np.asarray(embedding[left : left + BLOCK])
            products = rows @ columns.T
            # Ten times as fast as nonzero of two dimensions.
            row, column = np.divmod(np.flatnonzero(products >= threshold), len(columns))
            if left == top:
                row, column = row[column < row], column[column < row]
            yield (
                len(rows) * (len(rows) - 1) // 2 if left == top else products.size,
                Similar(left + column, top + row, products[row, column]),
            )


def _by_faiss(embedding: Floats | Chosen, threshold: float) -> Iterator[tuple[int, Similar]]:
    try:
        faiss = import_module("faiss")
    except ImportError as error:
        raise MissingExtraError("search by FAISS needs faiss-cpu: pip install 'facerts[faiss]'") from error
    index = faiss.IndexFlatIP(embedding.shape[1])
    # FAISS gives what is above a limit, and not what is at it.
    limit = float(np.nextafter(np.float32(threshold), np.float32(-np.inf)))
    for top in range(0, len(embedding), BLOCK):
        rows = np.ascontiguousarray(embedding[top : top + BLOCK])
        index.add(rows)
        ends, cosines, columns = index.range_search(rows, limit)
        row = top + np.repeat(np.arange(len(rows)), np.diff(ends.astype(np.int64)))
        earlier = columns < row
        yield (
            len(rows) * top + len(rows) * (len(rows) - 1) // 2,
            Similar(columns[earlier], row[earlier], cosines[earlier]),
        )
