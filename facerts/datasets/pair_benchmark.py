"""Verification benchmarks in memory, and those drawn from images with identities, such as a user's own faces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source, Subset
from facerts.errors import DataError
from facerts.metrics.compared_pairs import count_pairs
from facerts.metrics.intervals import pair_subjects

FOLDS = 10
# Of a user's own faces: pairs of each kind, and images that they are drawn from.
PAIRS, MAX_IMAGES, SEED = 3000, 20_000, 0


@dataclass(frozen=True)
class PairBenchmark:
    """Images, and genuine and impostor pairs of them.

    Attributes:
        images: aligned images; labels are the subjects if the benchmark names them.
        pairs: ``(P, 2) int64`` indices into ``images``.
        same: ``(P,) bool``, True for a genuine pair.
        folds: ``(P,) int64`` in ``0 … 9``.
    """

    name: str
    images: Source
    pairs: NDArray[np.int64]
    same: NDArray[np.bool_]
    folds: NDArray[np.int64]
    notes: tuple[str, ...] = field(default=())


def subjects_of_pairs(benchmark: PairBenchmark) -> NDArray[np.int64] | None:
    """``(P, 2)`` subjects of each pair, for intervals that resample subjects.

    None, so that pairs are resampled, if the subjects are unknown or contradict the pairs: if a benchmark's list and
    its names disagree, as its notes say, either of them may be wrong.
    """
    subjects = pair_subjects(benchmark.images.labels, benchmark.pairs)
    if subjects is None or ((subjects[:, 0] == subjects[:, 1]) != benchmark.same).any():
        return None
    return subjects


def repeated_images(benchmark: PairBenchmark, first: NDArray[np.int64]) -> tuple[str, ...]:
    """Warnings about images that occur more than once in a benchmark, one sentence each.

    ``first`` is ``(N,)``, the first image with the same bytes, from ``fingerprint.hash_images``.
    """
    notes = []
    images = first[benchmark.pairs]
    twice = images[:, 0] == images[:, 1]
    for flag, what in ((True, "genuine"), (False, "impostor")):
        rows = np.flatnonzero(twice & (benchmark.same == flag))
        if len(rows):
            notes.append(
                f"{len(rows)} {what} pairs consist of the same image twice, the first is "
                + _key(benchmark, images[rows[0], 0])
                + ("." if flag else ": they are mislabeled.")
            )
    used = np.unique(np.stack([images.reshape(-1), np.repeat(benchmark.folds, 2)], axis=1), axis=0)
    shared, folds = np.unique(used[:, 0], return_counts=True)
    across = shared[folds > 1]
    if len(across):
        folds_of_first = sorted(used[used[:, 0] == across[0], 1].tolist())
        notes.append(
            f"{len(across)} images occur in more than one fold, the first is {_key(benchmark, across[0])} in folds "
            f"{', '.join(str(fold) for fold in folds_of_first)}: thresholds chosen on the other folds have seen them."
        )
    return tuple(notes)


def _key(benchmark: PairBenchmark, row: int) -> str:
    return benchmark.images.key(int(row))


def pairs_of_people(source: Source) -> PairBenchmark:
    """A benchmark of a user's own faces: all images, and up to 3,000 pairs of each kind; its notes say how many.

    Of more than 20,000 images, those of as many people as these allow are drawn.
    """
    notes = []
    if source.labels is not None and len(source) > MAX_IMAGES:
        sizes = np.bincount(source.labels)
        people = np.random.default_rng(SEED).permutation(len(sizes))
        chosen = people[np.cumsum(sizes[people]) <= MAX_IMAGES]
        notes.append(
            f"{len(chosen):,} of {len(sizes):,} people were drawn with seed {SEED}, for at most {MAX_IMAGES:,} of "
            f"{len(source):,} images."
        )
        source = Subset(source, np.flatnonzero(np.isin(source.labels, chosen)))
    benchmark = pairs_from_identities(source, genuine=PAIRS, impostors=PAIRS, seed=SEED, every_image=True)
    assert source.labels is not None  # otherwise there would be no pairs
    genuine, impostors = count_pairs(source.labels)
    counts = (
        (int(benchmark.same.sum()), genuine, "genuine"),
        (int((~benchmark.same).sum()), impostors, "impostor"),
    )
    shown = " and ".join(
        f"{'all ' if drawn == there else ''}{drawn:,}{'' if drawn == there else f' of {there:,}'} {kind} pairs"
        for drawn, there, kind in counts
    )
    notes.append(
        f"Pairs are {shown} of its {len(source.identities):,} people, drawn with seed {SEED} so that nobody is in two "
        "folds; --all-pairs measures every pair."
    )
    return replace(benchmark, notes=tuple(notes))


def pairs_from_identities(
    source: Source, *, genuine: int, impostors: int, seed: int, every_image: bool = False
) -> PairBenchmark:
    """Sample so many genuine and impostor pairs, over all folds, from a labeled source; the same for the same seed.

    Identities are assigned to ten folds, and both images of a pair are from the same fold, so that no identity appears
    in two folds. A fold with fewer pairs than requested contributes all of them.

    Args:
        every_image: keep also the images that are in no pair.

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
            f"{source.name}: {len(source.identities)} identities are too few for pairs in two folds; it takes at "
            "least four, two of them with two images"
        )
    # Identities with genuine pairs are assigned first, so that every fold has some.
    singles = np.setdiff1d(np.arange(len(source.identities)), with_pairs)
    order = np.concatenate([random.permutation(with_pairs), random.permutation(singles)])
    fold_of = np.empty(len(order), dtype=np.int64)
    fold_of[order] = np.arange(len(order)) % folds
    pairs: list[NDArray[np.int64]] = []
    same: list[bool] = []
    fold_numbers: list[int] = []
    for fold in range(folds):
        rows = np.flatnonzero(fold_of[labels] == fold)
        upper = np.stack(np.triu_indices(len(rows), 1), axis=1)
        is_same = labels[rows[upper[:, 0]]] == labels[rows[upper[:, 1]]]
        for flag, requested in ((True, genuine), (False, impostors)):
            candidates = upper[is_same == flag]
            share = requested // folds + (fold < requested % folds)
            chosen = random.permutation(len(candidates))[:share]
            pairs.append(rows[candidates[chosen]])
            same += [flag] * len(chosen)
            fold_numbers += [fold] * len(chosen)
    images, listed = source, np.concatenate(pairs)
    if not every_image:
        used, renumbered = np.unique(listed, return_inverse=True)
        images, listed = Subset(source, used), renumbered.reshape(-1, 2)
    return PairBenchmark(
        source.name,
        images,
        listed.astype(np.int64),
        np.array(same, dtype=bool),
        np.array(fold_numbers, dtype=np.int64),
    )
