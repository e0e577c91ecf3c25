"""Pairs of identities that look like one person, by their mean embeddings or by near-duplicate images."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from facerts.curation.identity_means import identity_means
from facerts.curation.identity_pairs import SHARED, IdentityPair
from facerts.curation.pairwise import EmbeddingSubset, Floats, similar_pairs
from facerts.datasets import Source
from facerts.embedding.search import Backend


@dataclass
class _SharedImages:
    """Near-duplicate images of two identities.

    Attributes:
        max_cosine: cosine similarity of the most similar pair.
    """

    first: set[int] = field(default_factory=set)
    second: set[int] = field(default_factory=set)
    max_cosine: float = -1.0
    example: tuple[int, int] = (-1, -1)


def similar_identities(
    source: Source,
    embedding: Floats,
    kept: NDArray[np.bool_],
    *,
    mean_threshold: float,
    image_threshold: float | None,
    backend: Backend,
) -> list[IdentityPair]:
    """Compare the mean embeddings of all identities, and their images.

    Two identities are considered one person if their means are similar enough, or if half of the images of the smaller
    identity are near-duplicates of images of the other. Pairs with fewer images in common are returned, too.

    Args:
        embedding: ``(N, d)`` embeddings of the images.
        kept: ``(N,)`` mask of the images to compare.
        mean_threshold: minimum cosine similarity of two means.
        image_threshold: minimum cosine similarity of near-duplicate images; None does not compare images.
    """
    assert source.labels is not None
    labels, people = source.labels, len(source.identities)
    images = np.bincount(labels[kept], minlength=people)
    means = identity_means(embedding, labels, kept, people)
    alike: set[tuple[int, int]] = set()
    for block in similar_pairs(means, mean_threshold, "comparing identities", backend):
        alike |= set(zip(block.first.tolist(), block.second.tolist(), strict=True))
    shared = (
        {} if image_threshold is None else _shared_images(labels, embedding, kept, image_threshold, backend)
    )
    pairs = []
    for first, second in sorted(alike | shared.keys()):
        images_in_common = shared.get((first, second), _SharedImages())
        smaller = images_in_common.first if images[first] < images[second] else images_in_common.second
        share = len(smaller) / int(min(images[first], images[second]))
        cosine = float(means[first] @ means[second])
        details = {
            "mean_cosine": round(cosine, 4),
            "similar_images": len(smaller),
            "share": round(share, 4),
            "highest_cosine": round(images_in_common.max_cosine, 4) if smaller else None,
            "example": [source.location(index) for index in images_in_common.example] if smaller else None,
        }
        pairs.append(
            IdentityPair(first, second, (first, second) in alike or share >= SHARED, cosine, details)
        )
    return pairs


def _shared_images(
    labels: NDArray[np.int64], embedding: Floats, kept: NDArray[np.bool_], threshold: float, backend: Backend
) -> dict[tuple[int, int], _SharedImages]:
    """The near-duplicates of pairs of identities, by the labels of the pair, lower label first."""
    rows = np.flatnonzero(kept)
    shared: dict[tuple[int, int], _SharedImages] = {}
    for block in similar_pairs(
        EmbeddingSubset(embedding, rows), threshold, "comparing images of different identities", backend
    ):
        earlier, later = rows[block.first], rows[block.second]
        swapped = labels[earlier] > labels[later]
        earlier, later = np.where(swapped, later, earlier), np.where(swapped, earlier, later)
        across = labels[earlier] != labels[later]
        for first, second, cosine in zip(
            earlier[across].tolist(), later[across].tolist(), block.cosine[across].tolist(), strict=True
        ):
            pair = shared.setdefault((int(labels[first]), int(labels[second])), _SharedImages())
            pair.first.add(first)
            pair.second.add(second)
            if cosine > pair.max_cosine:
                pair.max_cosine, pair.example = cosine, (first, second)
    return shared
