"""Embeddings compared: near-duplicates in a list, all similar pairs, and identities by their means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from facerts.errors import Error
from facerts.io.progress import progress_bar, track
from facerts.metrics.identification import search

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

# Rows compared at a time: sixteen megabytes of cosines.
BLOCK = 2048
# Rows held in memory for a search.
MAX_ROWS = 1 << 16


def check_threshold(value: float, name: str) -> None:
    """Refuse a minimum cosine that would match nothing or unrelated images."""
    if not 0 < value <= 1:
        raise Error(f"{name} {value:g} is not a valid minimum cosine; it must be above 0 and at most 1")


class NearDuplicates(NamedTuple):
    """The row ``(N,)`` that each row duplicates, −1 for rows that are kept, and the cosine similarity to it."""

    original: Rows
    cosine: Floats


class SimilarPairs(NamedTuple):
    """Pairs of rows with ``first < second``, and their cosine similarities."""

    first: Rows
    second: Rows
    cosine: Floats


class EmbeddingSubset:
    """A subset of the rows of a memory-mapped array of embeddings ``(N, d)``, read only when they are indexed."""

    def __init__(self, embedding: Floats, rows: Rows) -> None:
        self.shape = (len(rows), embedding.shape[1])
        self._embedding = embedding
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, part: slice | Rows) -> Floats:
        return np.asarray(self._embedding[self._rows[part]])


def find_near_duplicates(embedding: Floats | EmbeddingSubset, threshold: float) -> NearDuplicates:
    """Go through unit rows ``(N, d)``, preferred first; keep each whose cosines to kept ones are below a threshold."""
    original = np.full(len(embedding), -1, dtype=np.int64)
    cosine = np.zeros(len(embedding), dtype=np.float32)
    kept = np.empty(0, dtype=np.int64)
    for start in range(0, len(embedding), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(embedding)))
        if len(kept):
            nearest, products = _nearest(embedding, kept, rows)
            duplicate = products >= threshold
            original[rows[duplicate]], cosine[rows[duplicate]] = nearest[duplicate], products[duplicate]
            rows = rows[~duplicate]
        _mark_duplicates(embedding, rows, threshold, original, cosine)
        kept = np.concatenate([kept, rows[original[rows] < 0]])
    return NearDuplicates(original, cosine)


def similar_pairs(embedding: Floats | EmbeddingSubset, threshold: float, text: str) -> Iterator[SimilarPairs]:
    """All pairs of rows with at least a cosine similarity, exact, block by block, with a progress bar.

    Rows ``(N, d)`` are of unit length, and may be memory-mapped.
    """
    for top, left, products in _compared_before(embedding, text):
        # Ten times faster than np.nonzero of the matrix.
        row, column = np.divmod(np.flatnonzero(products >= threshold), products.shape[1])
        yield SimilarPairs(left + column, top + row, products[row, column])


def nearest_before(embedding: Floats | EmbeddingSubset, text: str) -> tuple[Rows, Floats]:
    """The most similar of the rows before each row, and the cosine similarity, exact, with a progress bar.

    Rows ``(N, d)`` are of unit length, preferred ones first. Returns ``(N,)`` each; −1 and −∞ for the first row.
    """
    nearest = np.full(len(embedding), -1, dtype=np.int64)
    best = np.full(len(embedding), -np.inf, dtype=np.float32)
    for top, left, products in _compared_before(embedding, text):
        column = products.argmax(axis=1)
        cosine = products[np.arange(len(products)), column]
        better = np.flatnonzero(cosine > best[top : top + BLOCK])
        nearest[top + better], best[top + better] = left + column[better], cosine[better]
    return nearest, best


def _compared_before(embedding: Floats | EmbeddingSubset, text: str) -> Iterator[tuple[int, int, Floats]]:
    """Blocks of cosines of rows with those before them, from a row and a column; −∞ where a row is not before."""
    with progress_bar() as bar:
        count = len(embedding)
        # Progress in pairs is linear in time, because each row is compared with all rows before it.
        task = bar.add_task(text, total=count * (count - 1) // 2, unit="pairs")
        for top in range(0, count, BLOCK):
            rows = np.asarray(embedding[top : top + BLOCK])
            for left in range(0, top + 1, BLOCK):
                products = rows @ (rows if left == top else np.asarray(embedding[left : left + BLOCK])).T
                if left == top:
                    products[np.triu_indices(len(rows))] = -np.inf
                yield top, left, products
                bar.advance(task, len(rows) * (len(rows) - 1) // 2 if left == top else products.size)


def lowest_of_each(total: int, sets: Iterable[Iterable[int]]) -> NDArray[np.int64]:
    """``(N,)`` the lowest of the items that each of ``total`` is connected with, by sets that share items."""
    parent = np.arange(total)

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = int(parent[item])
        return item

    for items in sets:
        roots = {root(int(item)) for item in items}
        for each in roots:
            parent[each] = min(roots)
    return np.array([root(item) for item in range(total)], dtype=np.int64)


def rows_by_label(labels: NDArray[np.int64]) -> Iterator[Rows]:
    """The rows of each label, in order of the labels."""
    order = np.argsort(labels, kind="stable")
    bounds = np.flatnonzero(np.diff(labels[order])) + 1
    begins, ends = np.append(0, bounds), np.append(bounds, len(order))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        yield order[begin:end]


def identity_means(embedding: Floats, labels: NDArray[np.int64], kept: NDArray[np.bool_], people: int) -> Floats:
    """The mean embedding of each identity, ``(C, d)`` of unit length; zero for identities without images.

    It takes those of the unit embeddings ``(N, d)`` that the mask ``kept`` ``(N,)`` has; ``labels`` ``(N,)`` are
    identities.
    """
    means = np.zeros((people, embedding.shape[1]), dtype=np.float32)
    each = track(rows_by_label(labels), "averaging identities", total=people, unit="identities")
    for rows in each:
        included = rows[kept[rows]]
        means[labels[rows[0]]] = _unit(embedding[included].sum(axis=0, dtype=np.float64))
    return means


def leave_one_out_cosines(vectors: Floats, weights: NDArray[np.floating] | None = None) -> Floats:
    """The cosine similarity ``(n,)`` of each embedding of an identity to the weighted mean of the others.

    An image is not compared with itself: with two images, each is compared with the other. Vectors ``(n, d)``, two or
    more, are of unit length, weights ``(n,)`` positive; None for equal ones.
    """
    own = vectors.astype(np.float64)
    weighted = own if weights is None else own * np.asarray(weights, dtype=np.float64)[:, None]
    others = _unit(weighted.sum(axis=0) - weighted)
    return np.asarray((own * others).sum(axis=1), dtype=np.float32)


def _nearest(embedding: Floats | EmbeddingSubset, kept: Rows, rows: Rows) -> tuple[Rows, Floats]:
    """The most similar kept row of each row, and the cosine similarity."""
    queries = np.asarray(embedding[rows])
    nearest = np.full(len(rows), -1, dtype=np.int64)
    best = np.full(len(rows), -np.inf, dtype=np.float32)
    for start in range(0, len(kept), MAX_ROWS):
        gallery = kept[start : start + MAX_ROWS]
        matches = search(embedding[gallery], queries, 1)
        better = matches.scores[:, 0] > best
        nearest[better], best[better] = gallery[matches.templates[better, 0]], matches.scores[better, 0]
    return nearest, best


def _mark_duplicates(
    embedding: Floats | EmbeddingSubset, rows: Rows, threshold: float, original: Rows, cosine: Floats
) -> None:
    block = np.asarray(embedding[rows])
    products = block @ block.T
    close = products >= threshold
    for position in range(len(rows)):
        if original[rows[position]] >= 0:
            continue
        duplicates = np.flatnonzero(close[position, position + 1 :]) + position + 1
        original[rows[duplicates]] = rows[position]
        cosine[rows[duplicates]] = products[position, duplicates]


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, 1e-12))
