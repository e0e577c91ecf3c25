"""Identification (1:N) from any labeled source: some people are enrolled, the rest are unknown."""

from __future__ import annotations

import numpy as np

from facerts.benchmarks.templates import Roster, TemplateBenchmark
from facerts.datasets.source import Source
from facerts.errors import DataError


def templates_from_identities(
    source: Source, *, enrolled: int = 1, unknown: float = 0.5, seed: int = 0
) -> TemplateBenchmark:
    """Deal people at random into a gallery and unknown ones, the same for the same seed.

    Somebody can be enrolled who has a picture left to be searched with. ``enrolled`` of such a person's pictures, drawn
    at random, are one template of the gallery; every other picture of the source is a probe by itself. There are
    no pairs.

    Args:
        source: pictures with identities.
        enrolled: pictures of a person in the gallery.
        unknown: share of the people who could be enrolled that is not, rounded to whole people; those with too
            few pictures are not enrolled either.
        seed: of the dealing.

    Raises:
        DataError: no identities, or the gallery would hold nobody or everybody.
    """
    if source.labels is None:
        raise DataError(f"{source.name}: a gallery needs identities, and this source has none")
    if enrolled < 1 or not 0 <= unknown <= 1:
        raise DataError(
            f"{source.name}: {enrolled} pictures enrolled and a share of {unknown:g} unknown make no gallery; "
            "enrol at least 1, and let the share lie between 0 and 1"
        )
    random = np.random.default_rng(seed)
    labels, people = source.labels, len(source.identities)
    able = np.flatnonzero(np.bincount(labels, minlength=people) > enrolled)
    known = random.permutation(able)[round(unknown * len(able)) :]
    if not len(known):
        raise DataError(
            f"{source.name}: nobody would be enrolled: {len(able)} of {people} people have the {enrolled + 1} pictures "
            f"that it takes, and a share of {unknown:g} of them is to be unknown"
        )
    if len(known) == people:
        raise DataError(
            f"{source.name}: all {people} people would be enrolled, which leaves no unknown ones; "
            f"raise the share of unknown people above {unknown:g}"
        )
    order = random.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    by_person = labels[order]
    turn = np.arange(len(labels)) - np.searchsorted(by_person, by_person)  # 0, 1, … within a person
    chosen = np.zeros(len(labels), dtype=bool)
    chosen[order] = (turn < enrolled) & np.isin(by_person, known)
    probes = np.flatnonzero(~chosen)
    # Templates of the gallery come first, in the order of the people; then the probes, in that of the pictures.
    subjects, of_gallery = np.unique(labels[chosen], return_inverse=True)
    template = np.empty(len(labels), dtype=np.int64)
    template[chosen] = of_gallery
    template[probes] = len(subjects) + np.arange(len(probes))
    mated = int(np.isin(labels[probes], subjects).sum())
    note = (
        f"{len(subjects)} of {people} people were enrolled with {enrolled} picture{'' if enrolled == 1 else 's'} "
        f"each, drawn with seed {seed}; {mated} probes are of them, {len(probes) - mated} of people not enrolled."
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
