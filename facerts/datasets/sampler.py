"""Image orders that depend only on their keys, such as seed and epoch, and not on the number of workers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source, Subset
from facerts.errors import DataError

# Makes the order of images without identities independent of that of the others.
UNLABELED = 0x0FACE5


def epoch_order(images: int, *key: int) -> NDArray[np.int64]:
    """A permutation of ``0 … images − 1``, keyed by seed, epoch and anything else that distinguishes orders."""
    return np.random.default_rng(key).permutation(images)


def identity_order(
    labels: NDArray[np.int64], per_identity: int, length: int, seed: int, epoch: int
) -> NDArray[np.int64]:
    """``(length,)`` indices of images in runs of ``per_identity`` images of one person, keyed by (seed, epoch).

    Images of people with at least two are used about equally often; people with one image have no pair and are left
    out. A person's last run is filled up with images from earlier runs.
    """
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(labels))
    by_person = order[np.argsort(labels[order], kind="stable")]
    runs = []
    for images in np.split(by_person, np.flatnonzero(np.diff(labels[by_person])) + 1):
        if len(images) < 2:
            continue
        filled = -(-len(images) // per_identity) * per_identity
        runs.append(np.resize(images, filled).reshape(-1, per_identity))
    if not runs:
        raise DataError("batches by identity need people with two or more images, and there are none")
    shuffled: NDArray[np.int64] = random.permutation(np.concatenate(runs)).reshape(-1)
    return np.resize(shuffled, length)


def sample_identities(source: Source, count: int, seed: int) -> NDArray[np.bool_]:
    """``(C,) bool``, True for ``count`` identities of a source, sampled at random, keyed by (seed, count)."""
    if source.labels is None or len(source.identities) <= count:
        raise DataError(
            f"{source.name}: cannot hold out {count} identities of {len(source.identities)}; "
            "some must be left to train on"
        )
    sampled = np.zeros(len(source.identities), dtype=bool)
    sampled[np.random.default_rng((seed, count)).choice(len(source.identities), count, replace=False)] = True
    return sampled


def hold_out_identities(source: Source, count: float, seed: int) -> tuple[Subset, Subset]:
    """Split a source by identity: all images but those of ``count`` sampled identities, and those.

    Below 1, the count is their share, of which there are at least four, as validation needs them.
    """
    count = int(count) if count >= 1 else max(4, round(count * len(source.identities)))
    sampled = sample_identities(source, count, seed)
    assert source.labels is not None
    out = sampled[source.labels]
    kept, heldout = Subset(source, np.flatnonzero(~out)), Subset(source, np.flatnonzero(out))
    heldout.name = f"{source.name}_heldout"
    return kept, heldout
