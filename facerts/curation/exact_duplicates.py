"""Pictures that a data set has more than once, byte for byte or pixel for pixel."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from facerts.curation.curation_job import Making, Settings, making
from facerts.curation.identity_pairs import (
    SHARED,
    Across,
    Pair,
    leave_out_dropped,
    merged,
    regrouped,
    tell_pairs,
)
from facerts.curation.output_spec import Target
from facerts.datasets.read_ahead import read_ahead, row_slices
from facerts.datasets.source import Source
from facerts.errors import Error
from facerts.images import decode

By = Literal["hash", "pixels"]

# Digests that are kept of all pictures; those of equal ones are told apart by whole digests.
_SHORT = 8


@dataclass(frozen=True)
class Copies:
    """What a source has more than once.

    Attributes:
        groups: numbers of pictures that are equal, each in the source's order and of two or more.
        broken: why pictures could not be decoded, by their numbers.
    """

    groups: list[list[int]]
    broken: dict[int, str]


def find_copies(source: Source, by: By) -> Copies:
    """Compare all pictures of a source; memory holds three numbers for each.

    Args:
        source: any pictures.
        by: "hash" for equal bytes; "pixels" for equal decoded pictures, whatever their files say.

    Raises:
        DataError: the bytes of a picture cannot be had.
    """
    broken: dict[int, str] = {}
    digest = _of_bytes if by == "hash" else _of_pixels

    def short(index: int) -> bytes:
        try:
            return digest(source, index)[:_SHORT]
        except Error as error:
            if by == "hash":
                raise
            broken[index] = str(error)
            return bytes(_SHORT)

    digests = np.empty(len(source), dtype=np.uint64)
    for index, found in enumerate(read_ahead(range(len(source)), short, f"hashing {source.name}")):
        digests[index] = int.from_bytes(found, "big")
    ordered = np.sort(digests)
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    del ordered
    candidates = np.concatenate(
        [part.start + np.flatnonzero(np.isin(digests[part], repeated)) for part in row_slices(len(digests))]
    )
    whole: defaultdict[bytes, list[int]] = defaultdict(list)
    for index in candidates.tolist():
        if index not in broken:
            whole[digest(source, index)].append(index)
    return Copies([group for group in whole.values() if len(group) > 1], broken)


def dedup(
    source: Source,
    out: Target,
    *,
    by: By = "hash",
    across: Across = Across.REPORT,
    settings: Settings | None = None,
) -> dict[str, Any]:
    """Write a source with each picture once in each identity, the first one of equals.

    Pictures that stand in several identities are told in the report, as pairs of these identities; ``across`` says
    what else is done. Pictures that cannot be decoded are left out where pixels are compared.

    Args:
        source: any pictures; without identities each picture is there once in the whole.
        out: for the pictures that are left.
        by: as in ``find_copies``.
        across: what is done with identities that share pictures.
        settings: of the command.

    Returns:
        The report.

    Raises:
        Error: a data set cannot be read or written.
    """
    with making(source, [out], settings or Settings(), {"by": by, "across": across.value}) as made:
        copies = find_copies(source, by)
        for index, problem in sorted(copies.broken.items()):
            made.leave_out(index, "cannot be decoded", error=problem)
        labels = np.zeros(len(source), dtype=np.int64) if source.labels is None else source.labels
        reason = "equal bytes" if by == "hash" else "equal pixels"
        _leave_out_copies(made, copies, labels, reason)
        writes = source
        if source.labels is not None:
            pairs = _sharing(source, copies)
            tell_pairs(made, pairs, across)
            if across is Across.DROP:
                leave_out_dropped(made, pairs)
            elif across is Across.MERGE:
                becomes = merged(pairs, np.bincount(labels))
                _leave_out_copies(made, copies, becomes[labels], reason)
                writes = regrouped(source, becomes)
        made.write(out, writes, made.kept)
    return made.report


def _leave_out_copies(made: Making, copies: Copies, labels: NDArray[np.int64], reason: str) -> None:
    """Leave out each picture that is equal to an earlier one of the same label."""
    for group in copies.groups:
        first: dict[int, int] = {}
        for index in group:
            keeper = first.setdefault(int(labels[index]), index)
            if keeper != index:
                made.leave_out(index, reason, resembles=made.source.location(keeper))


def _sharing(source: Source, copies: Copies) -> list[Pair]:
    """The pairs of identities that have equal pictures."""
    assert source.labels is not None
    images = np.bincount(source.labels)
    shared: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for group in copies.groups:
        first: dict[int, int] = {}
        for index in group:
            first.setdefault(int(source.labels[index]), index)
        for one, other in combinations(sorted(first), 2):
            shared[one, other].append((first[one], first[other]))
    pairs = []
    for (one, other), pictures in shared.items():
        share = len(pictures) / int(min(images[one], images[other]))
        example = [source.location(index) for index in pictures[0]]
        facts = {"equal_pictures": len(pictures), "share": round(share, 4), "example": example}
        pairs.append(Pair(one, other, share >= SHARED, len(pictures), facts))
    return pairs


def _of_bytes(source: Source, index: int) -> bytes:
    return hashlib.sha256(source.read(index)).digest()


def _of_pixels(source: Source, index: int) -> bytes:
    image = decode(source.read(index), where=source.location(index))
    return hashlib.sha256(f"{image.shape}".encode() + image.tobytes()).digest()
