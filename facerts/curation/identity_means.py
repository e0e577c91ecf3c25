"""Mean embeddings of identities, and the similarity of images to them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from facerts.curation.embeddings import Floats
from facerts.io.progress import track

Rows = NDArray[np.int64]


def rows_by_label(labels: NDArray[np.int64]) -> Iterator[Rows]:
    """The rows of each label, in order of the labels."""
    order = np.argsort(labels, kind="stable")
    bounds = np.flatnonzero(np.diff(labels[order])) + 1
    begins, ends = np.append(0, bounds), np.append(bounds, len(order))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        yield order[begin:end]


def identity_means(
    embedding: Floats, labels: NDArray[np.int64], kept: NDArray[np.bool_], people: int
) -> Floats:
    """The mean embedding of each identity, ``(C, d)`` of unit length; zero for identities without images.

    Args:
        embedding: ``(N, d)`` of unit length.
        labels: ``(N,)`` the identity of each image.
        kept: ``(N,)`` mask of the images to include.
    """
    means = np.zeros((people, embedding.shape[1]), dtype=np.float32)
    each = track(rows_by_label(labels), "averaging identities", total=people, unit="identities")
    for rows in each:
        included = rows[kept[rows]]
        means[labels[rows[0]]] = _unit(embedding[included].sum(axis=0, dtype=np.float64))
    return means


def leave_one_out_cosines(vectors: Floats, weights: NDArray[np.floating] | None = None) -> Floats:
    """The cosine similarity ``(n,)`` of each embedding of an identity to the weighted mean of the others.

    An image is not compared with itself: with two images, each is compared with the other.

    Args:
        vectors: ``(n, d)`` of unit length, two or more.
        weights: ``(n,)`` positive weights; None for equal ones.
    """
    own = vectors.astype(np.float64)
    weighted = own if weights is None else own * np.asarray(weights, dtype=np.float64)[:, None]
    others = _unit(weighted.sum(axis=0) - weighted)
    return np.asarray((own * others).sum(axis=1), dtype=np.float32)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, 1e-12))
