"""A verification set from identities that were held out of training."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks.pairs import PairBenchmark
from facerts.datasets.source import Source, Subset
from facerts.errors import DataError

FOLDS = 10


def pairs_from_identities(source: Source, *, genuine: int, impostors: int, seed: int) -> PairBenchmark:
    """Draw pairs from a labeled source, the same for the same seed.

    Identities are dealt into ten folds, and both pictures of a pair are of one fold, so that no identity stands
    in two folds. Where a fold has fewer pairs than asked for, it gives all that it has.

    Args:
        source: pictures with identities.
        genuine: pairs of one identity, over all folds.
        impostors: pairs of two identities.
        seed: of the drawing.

    Raises:
        DataError: no identities, or too few to make both kinds of pairs in two folds.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from facerts.datasets import open_source
        >>> from facerts.datasets.synthetic import write_synthetic_faces
        >>> with TemporaryDirectory() as folder:
        ...     write_synthetic_faces(folder, identities=20, images=2)
        ...     benchmark = pairs_from_identities(open_source(folder), genuine=20, impostors=20, seed=0)
        >>> benchmark.pairs.shape, int(benchmark.same.sum())
        ((40, 2), 20)
    """
    if source.labels is None:
        raise DataError(f"{source.name}: pairs need identities, and this source has none")
    random = np.random.default_rng(seed)
    labels = source.labels
    with_pairs = np.flatnonzero(np.bincount(labels) >= 2)
    folds = min(FOLDS, len(with_pairs), len(source.identities) // 2)
    if folds < 2:
        raise DataError(
            f"{source.name}: {len(source.identities)} identities are too few for pairs in two folds"
        )
    # Identities that can make genuine pairs are dealt first, so that every fold has some.
    singles = np.setdiff1d(np.arange(len(source.identities)), with_pairs)
    dealt = np.concatenate([random.permutation(with_pairs), random.permutation(singles)])
    fold_of = np.empty(len(dealt), dtype=np.int64)
    fold_of[dealt] = np.arange(len(dealt)) % folds
    pairs: list[NDArray[np.int64]] = []
    same: list[bool] = []
    fold_numbers: list[int] = []
    for fold in range(folds):
        rows = np.flatnonzero(fold_of[labels] == fold)
        upper = np.stack(np.triu_indices(len(rows), 1), axis=1)
        is_same = labels[rows[upper[:, 0]]] == labels[rows[upper[:, 1]]]
        for flag, wanted in ((True, genuine), (False, impostors)):
            candidates = upper[is_same == flag]
            share = wanted // folds + (fold < wanted % folds)
            chosen = random.permutation(len(candidates))[:share]
            pairs.append(rows[candidates[chosen]])
            same += [flag] * len(chosen)
            fold_numbers += [fold] * len(chosen)
    used, renumbered = np.unique(np.concatenate(pairs), return_inverse=True)
    return PairBenchmark(
        source.name,
        Subset(source, used),
        renumbered.reshape(-1, 2).astype(np.int64),
        np.array(same, dtype=bool),
        np.array(fold_numbers, dtype=np.int64),
    )
