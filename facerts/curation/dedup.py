"""Remove duplicates from a data set: images of equal bytes, or by embeddings near-duplicates and mislabeled images."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from facerts.curation.embeddings import SourceEmbedder
from facerts.curation.output_spec import CurationJob, OutputSpec, Report, identity_of, open_job
from facerts.curation.pairwise import (
    EmbeddingSubset,
    Floats,
    check_threshold,
    find_near_duplicates,
    identity_means,
    leave_one_out_cosines,
    lowest_of_each,
    rows_by_label,
    similar_pairs,
)
from facerts.datasets.fingerprint import hash_images
from facerts.datasets.source import Relabeled, Source
from facerts.detection.detector import FaceFinder
from facerts.io.progress import track

QUANTILES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95)
# Two identities are one person if they share this much of the smaller one; a few shared images may be of either.
SHARED = 0.5

Labels = NDArray[np.int64]
# What is done about identities that look like one person.
IdentityAction = Literal["report", "merge", "drop"]


@dataclass(frozen=True)
class DedupThresholds:
    """Thresholds of cosine similarity.

    Attributes:
        threshold: minimum for near-duplicate images, above 0.
        identity_threshold: minimum for the means of two identities that look like one person, above 0.
        min_own_cosine: minimum for an image and the mean of the other images of its identity; less similar images are
            dropped, None keeps all.
        images_across: also compare images of different identities; the time is quadratic in the number of images.
    """

    threshold: float = 0.95
    identity_threshold: float = 0.7
    min_own_cosine: float | None = None
    images_across: bool = True

    def __post_init__(self) -> None:
        for name in ("threshold", "identity_threshold"):
            check_threshold(getattr(self, name), f"--{name.replace('_', '-')}")


def dedup(
    source: Source,
    out: OutputSpec,
    embedder: SourceEmbedder | None = None,
    thresholds: DedupThresholds | None = None,
    *,
    identity_action: IdentityAction = "report",
    detector: FaceFinder | None = None,
) -> Report:
    """Write a source without duplicates and, optionally, without mislabeled images and duplicate identities.

    Without an embedder, images of equal bytes are duplicates, and the first of an identity is kept. With one, images
    of similar embeddings are, and the one with the best quality is kept (the first one if the model has no quality);
    images that are far from the mean of the others of their identity are dropped, if ``thresholds.min_own_cosine`` is
    given. Images that cannot be read are dropped.

    Identities that look like one person, by the images that they share or by their means, are reported, and merged or
    dropped by ``identity_action``. Without identities, all images are compared with each other.
    """
    thresholds = thresholds or DedupThresholds()
    settings: dict[str, object] = {"by": "hash", "identity_action": identity_action}
    if embedder is not None:
        settings |= {"by": "embedding", **asdict(thresholds), **embedder.settings(detector)}
    with open_job(source, [out], settings) as job:
        key: _Bytes | _Embeddings = (
            _Bytes(job) if embedder is None else _Embeddings(job, embedder, thresholds, detector)
        )
        labels, written = source.labels, source
        key.drop_duplicates(job, np.zeros(len(source), dtype=np.int64) if labels is None else labels)
        if labels is not None:
            pairs = key.identity_pairs(job, labels)
            report_pairs(job, pairs, identity_action)
            images = np.bincount(labels[job.kept], minlength=len(source.identities))
            if identity_action == "drop":
                _drop_identities(job, labels, choose_dropped(pairs, images))
            elif identity_action == "merge":
                new_labels = merge_labels(pairs, images)
                key.drop_duplicates(job, new_labels[labels])
                written = _relabeled(source, new_labels)
        job.write(out, written, job.kept)
    return job.report


class _Bytes:
    """Images of equal bytes are duplicates."""

    def __init__(self, job: CurationJob) -> None:
        hashed = hash_images(job.source, f"hashing {job.source.name}")
        job.drop_unreadable(hashed.unreadable)
        self._first = hashed.first

    def drop_duplicates(self, job: CurationJob, labels: Labels) -> None:
        """Drop each image that is a duplicate of a better one with the same label."""
        keys = self._first * (labels.max() + 1) + labels
        _, keepers, of_image = np.unique(keys, return_index=True, return_inverse=True)
        keeper = keepers[of_image]
        for index in np.flatnonzero(keeper != np.arange(len(keeper))).tolist():
            job.drop(index, "equal bytes", resembles=job.source.location(int(keeper[index])))

    def identity_pairs(self, job: CurationJob, labels: Labels) -> list[IdentityPair]:
        """The pairs of identities that may be one person."""
        repeated = np.bincount(self._first) > 1
        rows = np.flatnonzero(repeated[self._first] & job.kept)
        groups = (rows[group].tolist() for group in rows_by_label(self._first[rows]))
        pairs = ((*pair, 1.0) for group in groups for pair in combinations(group, 2))
        return pair_identities(job.source, job.kept, pairs)


class _Embeddings:
    """Images of similar embeddings are duplicates."""

    def __init__(
        self,
        job: CurationJob,
        embedder: SourceEmbedder,
        thresholds: DedupThresholds,
        detector: FaceFinder | None,
    ) -> None:
        self._embeddings = embedder.embed(job.source, job.scratch, detector)
        self._thresholds = thresholds
        job.drop_unreadable(self._embeddings.unreadable)

    def drop_duplicates(self, job: CurationJob, labels: Labels) -> None:
        """Drop each image that is a duplicate of a better one with the same label."""
        quality = self._embeddings.quality
        count = len(np.unique(labels))
        for rows in track(rows_by_label(labels), "comparing images of each identity", count, "identities"):
            rows = rows[job.kept[rows]]
            if quality is not None:
                rows = rows[np.argsort(-quality[rows], kind="stable")]
            subset = EmbeddingSubset(self._embeddings.embedding, rows)
            duplicates = find_near_duplicates(subset, self._thresholds.threshold)
            for position in np.flatnonzero(duplicates.original >= 0).tolist():
                job.drop(
                    int(rows[position]),
                    "near-duplicate",
                    resembles=job.source.location(int(rows[duplicates.original[position]])),
                    cosine=round(float(duplicates.cosine[position]), 4),
                )

    def identity_pairs(self, job: CurationJob, labels: Labels) -> list[IdentityPair]:
        """The pairs of identities that may be one person, without the images that are far from their own."""
        self._drop_outliers(job, labels)
        embedding, limits = self._embeddings.embedding, self._thresholds
        means = identity_means(embedding, labels, job.kept, len(job.source.identities))
        alike = set[tuple[int, int]]()
        for block in similar_pairs(means, limits.identity_threshold, "comparing identities"):
            alike |= set(zip(block.first.tolist(), block.second.tolist(), strict=True))
        pairs = self._pairs_across(job, labels) if limits.images_across else ()
        return pair_identities(job.source, job.kept, pairs, alike, means)

    def _pairs_across(self, job: CurationJob, labels: Labels) -> Iterator[tuple[int, int, float]]:
        """Near-duplicates of different identities, and their cosine similarities."""
        rows = np.flatnonzero(job.kept)
        subset = EmbeddingSubset(self._embeddings.embedding, rows)
        text = "comparing images of different identities"
        for block in similar_pairs(subset, self._thresholds.threshold, text):
            first, second = rows[block.first], rows[block.second]
            across = labels[first] != labels[second]
            columns = (first[across], second[across], block.cosine[across])
            yield from zip(*(column.tolist() for column in columns), strict=True)

    def _drop_outliers(self, job: CurationJob, labels: Labels) -> None:
        """Report how similar images are to the others of their identity, and drop those that are too dissimilar."""
        own_cosine = np.full(len(labels), np.nan, dtype=np.float32)
        for rows in rows_by_label(labels):
            rows = rows[job.kept[rows]]
            if len(rows) > 1:
                own_cosine[rows] = leave_one_out_cosines(np.asarray(self._embeddings.embedding[rows]))
        known = np.flatnonzero(np.isfinite(own_cosine))
        job.report["own_cosine"] = {
            "images": len(known),
            "quantiles": {
                f"{share:g}": round(float(np.quantile(own_cosine[known], share)), 4)
                for share in QUANTILES
                if len(known)
            },
        }
        minimum = self._thresholds.min_own_cosine
        if minimum is None:
            return
        for index in known[own_cosine[known] < minimum].tolist():
            job.drop(
                index,
                "far from its identity",
                resembles=identity_of(job.source, index),
                cosine=round(float(own_cosine[index]), 4),
            )


@dataclass(frozen=True)
class IdentityPair:
    """Two identities that may be one person.

    Attributes:
        one_person: whether they are considered one person; otherwise they only have images in common.
        certainty: higher is more certain; comparable between pairs that were found in the same way.
    """

    first: int
    second: int
    one_person: bool
    certainty: float
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _SharedImages:
    """Duplicate images of two identities; ``max_cosine`` is that of the most similar pair."""

    first: set[int] = field(default_factory=set)
    second: set[int] = field(default_factory=set)
    max_cosine: float = -1.0
    example: tuple[int, int] = (-1, -1)


def pair_identities(
    source: Source,
    kept: NDArray[np.bool_],
    duplicates: Iterable[tuple[int, int, float]],
    alike: Collection[tuple[int, int]] = (),
    means: Floats | None = None,
) -> list[IdentityPair]:
    """The pairs of identities that share images or are alike by their means.

    Two identities are considered one person if they are alike, or if half of the images of the smaller identity are
    duplicates of images of the other. Pairs with fewer images in common are returned, too.

    ``kept`` ``(N,)`` masks the images that count; ``duplicates`` are two images of different identities and their
    cosine similarity, ``alike`` pairs of labels, lower first, and ``means`` ``(C, d)`` the mean embeddings of the
    identities.
    """
    labels = source.labels
    assert labels is not None
    images = np.bincount(labels[kept], minlength=len(source.identities))
    shared: defaultdict[tuple[int, int], _SharedImages] = defaultdict(_SharedImages)
    for one, other, cosine in duplicates:
        first, second = (one, other) if labels[one] < labels[other] else (other, one)
        pair = shared[int(labels[first]), int(labels[second])]
        pair.first.add(first)
        pair.second.add(second)
        if cosine > pair.max_cosine:
            pair.max_cosine, pair.example = cosine, (first, second)
    pairs = []
    for first, second in sorted({*alike, *shared}):
        common = shared.get((first, second), _SharedImages())
        smaller = common.first if images[first] < images[second] else common.second
        share = len(smaller) / int(min(images[first], images[second]))
        details = {
            "shared_images": len(smaller),
            "share": round(share, 4),
            "example": [source.location(index) for index in common.example] if smaller else None,
        }
        certainty = float(len(smaller))
        if means is not None:
            certainty = float(means[first] @ means[second])
            details["mean_cosine"] = round(certainty, 4)
            details["highest_cosine"] = round(common.max_cosine, 4) if smaller else None
        one_person = (first, second) in alike or share >= SHARED
        pairs.append(IdentityPair(first, second, one_person, certainty, details))
    return pairs


def report_pairs(job: CurationJob, pairs: Sequence[IdentityPair], action: IdentityAction) -> None:
    """Write all pairs into the report, the most certain ones first."""
    names = job.source.identities
    job.report["identity_pairs"] = {
        "count": len(pairs),
        "one_person": sum(pair.one_person for pair in pairs),
        "done": action,
        "list": [
            {"first": names[pair.first], "second": names[pair.second], "one_person": pair.one_person}
            | dict(pair.details)
            for pair in sorted(pairs, key=lambda pair: (-pair.one_person, -pair.certainty))
        ],
    }


def merge_labels(pairs: Sequence[IdentityPair], images: NDArray[np.integer]) -> Labels:
    """The new label ``(C,)`` of each label after merging pairs that are one person.

    Connected labels become the one with the most images, ``(C,)``, or the first of these.
    """
    together = lowest_of_each(len(images), ((pair.first, pair.second) for pair in pairs if pair.one_person))
    kept = np.empty(len(images), dtype=np.int64)
    # The best comes last.
    for label in np.lexsort((-np.arange(len(images)), images)).tolist():
        kept[together[label]] = label
    return kept[together]


def _relabeled(source: Source, new_labels: Labels) -> Source:
    """A source with merged identities, whose files have the former name of their identity before them."""
    names = [source.identities[label] for label in new_labels]
    prefixes = ["" if name == own else f"{own}_" for name, own in zip(names, source.identities, strict=True)]
    return Relabeled(source, names, prefixes)


def choose_dropped(pairs: Sequence[IdentityPair], images: NDArray[np.integer]) -> dict[int, IdentityPair]:
    """The labels to drop so that no person has two labels, each with the pair that is the reason.

    Of each pair, most certain first, the label with fewer images, ``(C,)``, is dropped, or else the second one.
    """
    dropped: dict[int, IdentityPair] = {}
    for pair in sorted(pairs, key=lambda pair: -pair.certainty):
        if pair.one_person and not dropped.keys() & {pair.first, pair.second}:
            label = pair.second if images[pair.second] <= images[pair.first] else pair.first
            dropped[label] = pair
    return dropped


def _drop_identities(job: CurationJob, labels: Labels, dropped: Mapping[int, IdentityPair]) -> None:
    for index in np.flatnonzero(np.isin(labels, list(dropped))).tolist():
        pair = dropped[int(labels[index])]
        other = pair.second if labels[index] == pair.first else pair.first
        job.drop(index, "identity resembles another", resembles=job.source.identities[other], **pair.details)
