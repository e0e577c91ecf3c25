"""Identities as the means of their pictures, and how far pictures are from those."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from facerts.curation.embeddings import Floats
from facerts.io.progress import track

Rows = NDArray[np.int64]


def rows_of_each(labels: NDArray[np.int64]) -> Iterator[Rows]:
    """The rows of each label that there is, from the lowest up."""
    order = np.argsort(labels, kind="stable")
    bounds = np.flatnonzero(np.diff(labels[order])) + 1
    begins, ends = np.append(0, bounds), np.append(bounds, len(order))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        yield order[begin:end]


def identity_means(
    embedding: Floats, labels: NDArray[np.int64], kept: NDArray[np.bool_], people: int
) -> Floats:
    """``(C, d)`` the mean of each identity's pictures at unit length; zero where there are none.

    Args:
        embedding: ``(N, d)`` of unit length.
        labels: ``(N,)`` the identity of each picture.
        kept: ``(N,)`` which pictures count.
        people: C.
    """
    means = np.zeros((people, embedding.shape[1]), dtype=np.float32)
    each = track(rows_of_each(labels), "averaging identities", total=people, unit="identities")
    for rows in each:
        chosen = rows[kept[rows]]
        means[labels[rows[0]]] = _unit(embedding[chosen].sum(axis=0, dtype=np.float64))
    return means


def own_cosines(vectors: Floats) -> Floats:
    """``(n,)`` the cosine of each of an identity's embeddings to the mean of the others.

    A picture does not stand by itself in this: of two pictures each is the other's only measure.

    Args:
        vectors: ``(n, d)`` of unit length, two or more.
    """
    own = vectors.astype(np.float64)
    others = _unit(own.sum(axis=0) - own)
    return np.asarray((own * others).sum(axis=1), dtype=np.float32)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, 1e-12))
