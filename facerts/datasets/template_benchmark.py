"""Benchmarks of templates, in which several images represent a person; also drawn from images with identities."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.errors import DataError


@dataclass(frozen=True)
class Roster:
    """Templates ``(K,) int64``, by row, and their known subjects: a gallery, or the probes of a search."""

    name: str
    templates: NDArray[np.int64]
    subjects: NDArray[np.int64]


@dataclass(frozen=True)
class TemplateBenchmark:
    """Images grouped into templates, pairs of templates, and searches for probes in galleries.

    Attributes:
        template: ``(N,) int64`` row of each image's template.
        media: ``(N,) int64`` medium of each image; frames of the same video share it.
        template_ids: ``(T,) int64`` templates, as the benchmark numbers them.
        pairs: ``(P, 2)`` rows of templates, of any integer type; ``(0, 2)`` if the benchmark has no pairs.
        same: ``(P,) bool``, True for a genuine pair.
    """

    name: str
    images: Source
    template: NDArray[np.int64]
    media: NDArray[np.int64]
    template_ids: NDArray[np.int64]
    pairs: NDArray[np.integer]
    same: NDArray[np.bool_]
    galleries: tuple[Roster, ...]
    probes: Roster | None
    notes: tuple[str, ...] = field(default=())


def templates_from_identities(
    source: Source, *, enrolled: int = 1, unknown: float = 0.5, seed: int = 0
) -> TemplateBenchmark:
    """Split people at random into enrolled and unknown ones, the same for the same seed.

    A person can be enrolled who has an image left to use as a probe. ``enrolled`` random images of such a person form a
    template of the gallery; every other image of the source is a probe of its own. There are no pairs.

    Args:
        unknown: share of the eligible people who are not enrolled, rounded to whole people; people with too few images
            are not enrolled either.
    """
    if source.labels is None:
        raise DataError(f"{source.name}: a gallery needs identities, and this source has none")
    if enrolled < 1 or not 0 <= unknown <= 1:
        raise DataError(
            f"{source.name}: cannot enroll {enrolled} images with a share of {unknown:g} unknown; "
            "enroll at least 1 image, and choose a share between 0 and 1"
        )
    random = np.random.default_rng(seed)
    labels, people = source.labels, len(source.identities)
    eligible = np.flatnonzero(np.bincount(labels, minlength=people) > enrolled)
    known = random.permutation(eligible)[round(unknown * len(eligible)) :]
    if not len(known):
        raise DataError(
            f"{source.name}: nobody would be enrolled: {len(eligible)} of {people} people have the required "
            f"{enrolled + 1} images, and a share of {unknown:g} of them is to be unknown"
        )
    if len(known) == people:
        raise DataError(
            f"{source.name}: all {people} people would be enrolled, which leaves no unknown ones; "
            f"raise the share of unknown people above {unknown:g}"
        )
    order = random.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    by_person = labels[order]
    rank = np.arange(len(labels)) - np.searchsorted(by_person, by_person)  # 0, 1, … within a person
    chosen = np.zeros(len(labels), dtype=bool)
    chosen[order] = (rank < enrolled) & np.isin(by_person, known)
    probes = np.flatnonzero(~chosen)
    # Gallery templates come first, in the order of the people, then the probes, in the order of the images.
    subjects, of_gallery = np.unique(labels[chosen], return_inverse=True)
    template = np.empty(len(labels), dtype=np.int64)
    template[chosen] = of_gallery
    template[probes] = len(subjects) + np.arange(len(probes))
    mated = int(np.isin(labels[probes], subjects).sum())
    note = (
        f"{len(subjects)} of {people} people were enrolled with {enrolled} image{'' if enrolled == 1 else 's'} "
        f"each, sampled with seed {seed}; {mated} probes are of them, {len(probes) - mated} of people not enrolled."
    )
    return TemplateBenchmark(
        source.name,
        source,
        template,
        np.arange(len(labels), dtype=np.int64),
        np.arange(len(subjects) + len(probes), dtype=np.int64),
        np.empty((0, 2), dtype=np.int64),
        np.empty(0, dtype=bool),
        (Roster("enrolled", np.arange(len(subjects), dtype=np.int64), subjects),),
        Roster("probes", template[probes], labels[probes]),
        (note,),
    )
