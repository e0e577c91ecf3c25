"""Orders of pictures that depend on their keys alone: the same for any number of workers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.data.source import Source, Subset
from facerts.errors import DataError


def epoch_order(images: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """A permutation of ``0 … images − 1``, keyed by (seed, epoch)."""
    return np.random.default_rng((seed, epoch)).permutation(images)


def hold_out_identities(source: Source, count: int, seed: int) -> tuple[Subset, Subset]:
    """Split by identity: all pictures but those of ``count`` identities, and theirs.

    Raises:
        DataError: the source has no identities, or not more than ``count``.
    """
    if source.labels is None or len(source.identities) <= count:
        raise DataError(
            f"{source.name}: cannot hold out {count} identities of {len(source.identities)}; "
            "some must be left to train on"
        )
    held = np.random.default_rng((seed, count)).choice(len(source.identities), count, replace=False)
    out = np.isin(source.labels, held)
    kept, heldout = Subset(source, np.flatnonzero(~out)), Subset(source, np.flatnonzero(out))
    heldout.name = f"{source.name}_heldout"
    return kept, heldout
