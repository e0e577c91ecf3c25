"""Pairs of identities that look like one person: by their means, or by pictures that are almost the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from facerts.curation.identity_means import identity_means
from facerts.curation.identity_pairs import SHARED, Pair
from facerts.curation.pairwise import Chosen, Floats, similar
from facerts.datasets import Source
from facerts.embedding.search import Backend


@dataclass
class _Common:
    """Pictures of two identities that are almost the same.

    Attributes:
        first: numbers of those of the one.
        second: of those of the other.
        highest: cosine of the most similar two.
        example: these two.
    """

    first: set[int] = field(default_factory=set)
    second: set[int] = field(default_factory=set)
    highest: float = -1.0
    example: tuple[int, int] = (-1, -1)


def look_alikes(
    source: Source,
    embedding: Floats,
    kept: NDArray[np.bool_],
    *,
    by_means: float,
    by_pictures: float | None,
    backend: Backend,
) -> list[Pair]:
    """Compare the means of all identities with each other, and their pictures.

    Two identities are taken for one person where their means are similar enough, or where half of the pictures of the
    one with fewer are almost the same as pictures of the other. Pairs that have fewer in common are found too.

    Args:
        source: with identities.
        embedding: ``(N, d)`` of its pictures.
        kept: ``(N,)`` which of them count.
        by_means: least cosine of two means.
        by_pictures: least cosine of pictures that are almost the same; None compares none.
        backend: of the search.
    """
    assert source.labels is not None
    labels, people = source.labels, len(source.identities)
    images = np.bincount(labels[kept], minlength=people)
    means = identity_means(embedding, labels, kept, people)
    alike: set[tuple[int, int]] = set()
    for block in similar(means, by_means, "comparing identities", backend):
        alike |= set(zip(block.first.tolist(), block.second.tolist(), strict=True))
    common = {} if by_pictures is None else _in_common(labels, embedding, kept, by_pictures, backend)
    pairs = []
    for first, second in sorted(alike | common.keys()):
        found = common.get((first, second), _Common())
        fewer = found.first if images[first] < images[second] else found.second
        share = len(fewer) / int(min(images[first], images[second]))
        cosine = float(means[first] @ means[second])
        facts = {
            "mean_cosine": round(cosine, 4),
            "similar_pictures": len(fewer),
            "share": round(share, 4),
            "highest_cosine": round(found.highest, 4) if fewer else None,
            "example": [source.location(index) for index in found.example] if fewer else None,
        }
        pairs.append(Pair(first, second, (first, second) in alike or share >= SHARED, cosine, facts))
    return pairs


def _in_common(
    labels: NDArray[np.int64], embedding: Floats, kept: NDArray[np.bool_], threshold: float, backend: Backend
) -> dict[tuple[int, int], _Common]:
    """What pairs of identities have in common, by their labels, the lower one first."""
    rows = np.flatnonzero(kept)
    found: dict[tuple[int, int], _Common] = {}
    for block in similar(
        Chosen(embedding, rows), threshold, "comparing pictures of different identities", backend
    ):
        one, other = rows[block.first], rows[block.second]
        swapped = labels[one] > labels[other]
        one, other = np.where(swapped, other, one), np.where(swapped, one, other)
        across = labels[one] != labels[other]
        for first, second, cosine in zip(
            one[across].tolist(), other[across].tolist(), block.cosine[across].tolist(), strict=True
        ):
            pair = found.setdefault((int(labels[first]), int(labels[second])), _Common())
            pair.first.add(first)
            pair.second.add(second)
            if cosine > pair.highest:
                pair.highest, pair.example = cosine, (first, second)
    return found
