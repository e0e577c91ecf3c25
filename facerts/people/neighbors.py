"""Pairs of similar faces: exactly in collections of ordinary size, by an index that may miss some in large ones."""

from __future__ import annotations

from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from facerts.errors import MissingExtraError, install_hint
from facerts.metrics.identification import SearchResult, search

Rows = NDArray[np.int64]

NEIGHBORS = 32
# Comparing 100,000 faces with each other takes less time than an index of them, and misses none; see
# docs/results/people.md.
EXACT_FACES = 200_000
# HNSW: links of a face, and candidates that are kept while building and while searching.
LINKS, BUILDING, SEARCHING = 32, 100, 128
BLOCK = 20_000


def similar_pairs(
    embedding: NDArray[np.float32], minimum: float, *, k: int = NEIGHBORS, exact: bool | None = None
) -> tuple[Rows, Rows]:
    """Pairs of faces of which one is among the k nearest of the other.

    Args:
        embedding: ``(N, d)`` of unit length.
        minimum: the lowest cosine of a pair.
        exact: compare all faces; None for up to ``EXACT_FACES``. Otherwise an HNSW index (Malkov and Yashunin,
            "Efficient and robust approximate nearest neighbor search using hierarchical navigable small world graphs",
            TPAMI 2020) may miss some, see docs/results/people.md for how many.

    Returns:
        Rows of the first and of the second face of each pair, first < second, in order.
    """
    total = len(embedding)
    if total < 2:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    found = nearest(embedding, embedding, k + 1, exact=total <= EXACT_FACES if exact is None else exact)
    near = (found.scores >= minimum) & (found.templates >= 0)
    near &= found.templates != np.arange(total)[:, None]
    first, column = np.nonzero(near)
    second = found.templates[first, column]
    keys = np.unique(np.minimum(first, second) * total + np.maximum(first, second))
    return keys // total, keys % total


def nearest(gallery: NDArray[np.float32], probes: NDArray[np.float32], k: int, *, exact: bool) -> SearchResult:
    """The k nearest faces ``(G, d)`` of each probe ``(P, d)``, all of unit length; −1 where an index found fewer."""
    try:
        faiss = import_module("faiss")
    except ImportError as error:
        if exact:
            return search(gallery, probes, k)
        raise MissingExtraError(f"searching in an index needs faiss-cpu: {install_hint('use')}") from error
    if exact:
        # An index of inner products (Johnson, Douze, Jégou, IEEE Transactions on Big Data 2021).
        index = faiss.IndexFlatIP(gallery.shape[1])
    else:
        index = faiss.IndexHNSWFlat(gallery.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = BUILDING
        index.hnsw.efSearch = max(SEARCHING, k)
    index.add(np.ascontiguousarray(gallery, dtype=np.float32))
    parts = [index.search(np.ascontiguousarray(probes[at : at + BLOCK]), k) for at in range(0, len(probes), BLOCK)]
    scores, rows = (np.concatenate(each) for each in zip(*parts, strict=True))
    return SearchResult(scores, rows)
