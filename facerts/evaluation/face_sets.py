"""The sets of faces that qualities are judged on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import PairBenchmark, Source, is_pair_benchmark, open_benchmarks, open_source
from facerts.datasets.changed import degraded_at_random
from facerts.datasets.fingerprint import ImageHashes, hash_images
from facerts.datasets.listed_pairs import PAIR_LIST_SUFFIXES
from facerts.datasets.pair_benchmark import subjects_of_pairs
from facerts.evaluation.evaluation_options import EvaluationOptions, check_names
from facerts.metrics.compared_pairs import count_pairs


@dataclass(frozen=True)
class FaceSet:
    """Faces, and the pairs of them that recognizers compare.

    Attributes:
        listed: the pairs to compare; None for all pairs if the people are known, otherwise none.
        original: the same faces before they were degraded, whose impostor pairs determine the thresholds; None for a
            set with thresholds of its own.
    """

    name: str
    images: Source
    listed: PairBenchmark | None = None
    original: FaceSet | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def hashes(self) -> ImageHashes:
        """Hashes of the images; of the original ones for a degraded set, whose seed is part of its crops' identity."""
        return hash_images(self.images) if self.original is None else self.original.hashes

    @property
    def first(self) -> NDArray[np.int64]:
        """``(N,)`` first image with the same crop."""
        return self.hashes.first if self.original is None else np.arange(len(self.images))

    @property
    def rows(self) -> NDArray[np.int64]:
        """Indices of the images that are not repetitions."""
        return np.flatnonzero(self.hashes.first == np.arange(len(self.images)))

    @property
    def people(self) -> NDArray[np.int64] | None:
        """``(N,)`` person of each image."""
        return self.images.labels

    @property
    def listed_people(self) -> NDArray[np.int64] | None:
        """``(P, 2)`` people of the listed pairs, if they are known."""
        return None if self.listed is None else subjects_of_pairs(self.listed)

    @property
    def has_pairs(self) -> bool:
        return self.listed is not None or self.people is not None

    @property
    def impostors(self) -> int:
        """Number of impostor pairs; 0 without pairs."""
        if self.listed is not None:
            return int((~self.listed.same).sum())
        return 0 if self.people is None else count_pairs(self.people[self.rows])[1]

    def degraded(self, seed: int) -> FaceSet:
        """The same set with half of its images degraded."""
        images = degraded_at_random(self.images, seed, share=0.5)
        listed = None if self.listed is None else replace(self.listed, images=images)
        return FaceSet(f"{self.name}, half degraded", images, listed, self)


def open_face_sets(paths: Sequence[str], options: EvaluationOptions) -> list[FaceSet]:
    """Open benchmarks of pairs, images with identities, and images without, as ``open_benchmarks`` or ``open_source``.

    All pairs are compared where people are known, otherwise those that a benchmark lists.
    """
    face_sets: list[FaceSet] = []
    for path in paths:
        place = Path(path)
        if is_pair_benchmark(place) if place.is_dir() else place.suffix.lower() in (".bin", *PAIR_LIST_SUFFIXES):
            for benchmark in open_benchmarks(place):
                one = replace(benchmark, images=options.crops_of(benchmark.images))
                listed = one if subjects_of_pairs(one) is None else None
                face_sets.append(FaceSet(one.name, one.images, listed, notes=one.notes))
        else:
            source = options.crops_of(open_source(path))
            face_sets.append(FaceSet(source.name, source))
    check_names([one.name for one in face_sets])
    return face_sets
