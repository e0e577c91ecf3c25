"""Orders of pictures that depend on their keys alone: the same for any number of workers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source, Subset
from facerts.errors import DataError

# Keeps the order of images without identity apart from that of the others.
UNLABELED = 0x0FACE5


def epoch_order(images: int, *key: int) -> NDArray[np.int64]:
    """A permutation of ``0 … images − 1``, keyed by (seed, epoch) and whatever else tells two orders apart."""
    return np.random.default_rng(key).permutation(images)


def identity_order(
    labels: NDArray[np.int64], per_identity: int, length: int, seed: int, epoch: int
) -> NDArray[np.int64]:
    """``(length,)`` pictures in runs of ``per_identity`` of one person, keyed by (seed, epoch).

    Every picture of a person with at least two comes about equally often; people with one picture have no pair and
    are left out. A person's last run is filled up with pictures that were in an earlier one.

    Raises:
        DataError: nobody has two pictures.
    """
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(labels))
    by_person = order[np.argsort(labels[order], kind="stable")]
    runs = []
    for pictures in np.split(by_person, np.flatnonzero(np.diff(labels[by_person])) + 1):
        if len(pictures) < 2:
            continue
        filled = -(-len(pictures) // per_identity) * per_identity
        runs.append(np.resize(pictures, filled).reshape(-1, per_identity))
    if not runs:
        raise DataError("batches by identity need people with two pictures or more, and there are none")
    drawn: NDArray[np.int64] = random.permutation(np.concatenate(runs)).reshape(-1)
    return np.resize(drawn, length)


def sample_identities(source: Source, count: int, seed: int) -> NDArray[np.bool_]:
    """``(C,)`` True for ``count`` identities of a source, drawn at random, keyed by (seed, count).

    Raises:
        DataError: the source has no identities, or not more than ``count``.
    """
    if source.labels is None or len(source.identities) <= count:
        raise DataError(
            f"{source.name}: cannot hold out {count} identities of {len(source.identities)}; "
            "some must be left to train on"
        )
    drawn = np.zeros(len(source.identities), dtype=bool)
    drawn[np.random.default_rng((seed, count)).choice(len(source.identities), count, replace=False)] = True
    return drawn


def hold_out_identities(source: Source, count: int, seed: int) -> tuple[Subset, Subset]:
    """Split by identity: all pictures but those of ``count`` identities, and theirs.

    Raises:
        DataError: as ``sample_identities``.
    """
    drawn = sample_identities(source, count, seed)
    assert source.labels is not None
    out = drawn[source.labels]
    kept, heldout = Subset(source, np.flatnonzero(~out)), Subset(source, np.flatnonzero(out))
    heldout.name = f"{source.name}_heldout"
    return kept, heldout
