"""Remove exact duplicates from a data set, equal byte by byte or pixel by pixel."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from facerts.curation.curation_job import CurationJob, JobOptions, open_job
from facerts.curation.identity_pairs import SHARED, IdentityAction, IdentityPair, resolve_pairs
from facerts.curation.output_spec import OutputSpec
from facerts.datasets.encoded_images import read_ahead, row_slices
from facerts.datasets.source import Source
from facerts.errors import Error
from facerts.images import decode

By = Literal["hash", "pixels"]

# Bytes of the digest that are kept of every image; where these collide, whole digests are compared.
_PREFIX_BYTES = 8


@dataclass(frozen=True)
class ExactDuplicates:
    """Images that a source has more than once.

    Attributes:
        groups: indices of equal images, two or more per group, in the order of the source.
    """

    groups: list[list[int]]
    broken: dict[int, str]


def find_duplicates(source: Source, by: By) -> ExactDuplicates:
    """Compare all images of a source; memory holds three numbers per image.

    Args:
        by: "hash" for equal bytes; "pixels" for equal decoded images, whatever their file formats.
    """
    broken: dict[int, str] = {}
    digest = _digest_bytes if by == "hash" else _digest_pixels

    def prefix(index: int) -> bytes:
        try:
            return digest(source, index)[:_PREFIX_BYTES]
        except Error as error:
            if by == "hash":
                raise
            broken[index] = str(error)
            return bytes(_PREFIX_BYTES)

    digests = np.empty(len(source), dtype=np.uint64)
    for index, value in enumerate(read_ahead(range(len(source)), prefix, f"hashing {source.name}")):
        digests[index] = int.from_bytes(value, "big")
    ordered = np.sort(digests)
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    del ordered
    candidates = np.concatenate(
        [part.start + np.flatnonzero(np.isin(digests[part], repeated)) for part in row_slices(len(digests))]
    )
    by_digest: defaultdict[bytes, list[int]] = defaultdict(list)
    for index in candidates.tolist():
        if index not in broken:
            by_digest[digest(source, index)].append(index)
    return ExactDuplicates([group for group in by_digest.values() if len(group) > 1], broken)


def dedup(
    source: Source,
    out: OutputSpec,
    *,
    by: By = "hash",
    identity_action: IdentityAction = IdentityAction.REPORT,
    options: JobOptions | None = None,
) -> dict[str, Any]:
    """Write a source without duplicate images within an identity; the first of equal images is kept.

    Identities that share images are reported as pairs, and merged or dropped by ``identity_action``. If pixels are
    compared, images that cannot be decoded are dropped.

    Args:
        source: the images; without identities, duplicates are removed from the whole source.
        identity_action: what to do with identities that share images.
    """
    settings = {"by": by, "identity_action": identity_action.value}
    with open_job(source, [out], options or JobOptions(), settings) as job:
        duplicates = find_duplicates(source, by)
        for index, problem in sorted(duplicates.broken.items()):
            job.drop(index, "cannot be decoded", error=problem)
        labels = np.zeros(len(source), dtype=np.int64) if source.labels is None else source.labels
        reason = "equal bytes" if by == "hash" else "equal pixels"
        _drop_duplicates(job, duplicates, labels, reason)
        output_source = source
        if source.labels is not None:
            output_source = resolve_pairs(
                job,
                _pairs_sharing_images(source, duplicates),
                identity_action,
                np.bincount(labels),
                lambda new_labels: _drop_duplicates(job, duplicates, new_labels[labels], reason),
            )
        job.write(out, output_source, job.kept)
    return job.report


def _drop_duplicates(
    job: CurationJob, duplicates: ExactDuplicates, labels: NDArray[np.int64], reason: str
) -> None:
    """Drop each image that is equal to an earlier one with the same label."""
    for group in duplicates.groups:
        first: dict[int, int] = {}
        for index in group:
            keeper = first.setdefault(int(labels[index]), index)
            if keeper != index:
                job.drop(index, reason, resembles=job.source.location(keeper))


def _pairs_sharing_images(source: Source, duplicates: ExactDuplicates) -> list[IdentityPair]:
    """The pairs of identities that have equal images."""
    assert source.labels is not None
    images = np.bincount(source.labels)
    shared: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for group in duplicates.groups:
        image_of: dict[int, int] = {}
        for index in group:
            image_of.setdefault(int(source.labels[index]), index)
        for first, second in combinations(sorted(image_of), 2):
            shared[first, second].append((image_of[first], image_of[second]))
    pairs = []
    for (first, second), equal in shared.items():
        share = len(equal) / int(min(images[first], images[second]))
        example = [source.location(index) for index in equal[0]]
        details = {"equal_images": len(equal), "share": round(share, 4), "example": example}
        pairs.append(IdentityPair(first, second, share >= SHARED, len(equal), details))
    return pairs


def _digest_bytes(source: Source, index: int) -> bytes:
    return hashlib.sha256(source.read(index)).digest()


def _digest_pixels(source: Source, index: int) -> bytes:
    image = decode(source.read(index), where=source.location(index))
    return hashlib.sha256(f"{image.shape}".encode() + image.tobytes()).digest()
