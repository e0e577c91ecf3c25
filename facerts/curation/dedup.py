"""Remove near-duplicate and mislabeled images from a data set, by their embeddings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.curation.curation_job import CurationJob, JobOptions, identity_of, open_job
from facerts.curation.embeddings import SourceEmbedder, SourceEmbeddings
from facerts.curation.identity_means import identity_means, leave_one_out_cosines, rows_by_label
from facerts.curation.identity_pairs import SHARED, IdentityAction, IdentityPair, resolve_pairs
from facerts.curation.output_spec import OutputSpec
from facerts.curation.pairwise import (
    EmbeddingSubset,
    Floats,
    check_threshold,
    find_near_duplicates,
    similar_pairs,
)
from facerts.datasets import Source
from facerts.detection.detector import FaceFinder
from facerts.embedding.search import Backend
from facerts.io.progress import track
from facerts.io.versions import installed_versions

QUANTILES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95)


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
    embedder: SourceEmbedder,
    thresholds: DedupThresholds | None = None,
    *,
    identity_action: IdentityAction = IdentityAction.REPORT,
    detector: FaceFinder | None = None,
    options: JobOptions | None = None,
) -> dict[str, Any]:
    """Write a source without near-duplicates and, optionally, without mislabeled images and duplicate identities.

    Of near-duplicates within an identity, the image with the best quality is kept (the first one if the model has no
    quality). Then images that are far from the mean of the others of their identity are dropped, if
    ``thresholds.min_own_cosine`` is given. Identities that look like one person, by their means or by near-duplicate
    images, are reported, and merged or dropped by ``identity_action``. Images that cannot be read are dropped. Without
    identities, all images are compared with each other.
    """
    thresholds = thresholds or DedupThresholds()
    settings = {"by": "embedding", **asdict(thresholds), "identity_action": identity_action.value}
    settings |= {**embedder.settings(), "detector": detector and detector.identity}
    with open_job(source, [out], options or JobOptions(), settings, installed_versions()) as job:
        embeddings = embedder.embed(source, job.scratch, detector)
        for index, problem in sorted(embeddings.unreadable.items()):
            job.drop(index, "cannot be read", error=problem)
        output_source = source
        if source.labels is None:
            _drop_near_duplicates(job, embeddings, np.arange(len(source)), thresholds, embedder)
        else:
            each = rows_by_label(source.labels)
            for rows in track(
                each, "comparing images of each identity", len(source.identities), "identities"
            ):
                _drop_near_duplicates(job, embeddings, rows, thresholds, embedder)
            _drop_outliers(job, embeddings, thresholds)
            pairs = similar_identities(
                source,
                embeddings.embedding,
                job.kept,
                mean_threshold=thresholds.identity_threshold,
                image_threshold=thresholds.threshold if thresholds.images_across else None,
                backend=embedder.search,
            )

            def drop_merged(new_labels: NDArray[np.int64]) -> None:
                assert source.labels is not None
                for rows in rows_by_label(new_labels[source.labels]):
                    if len(np.unique(source.labels[rows])) > 1:
                        _drop_near_duplicates(job, embeddings, rows, thresholds, embedder)

            images = np.bincount(source.labels[job.kept], minlength=len(source.identities))
            output_source = resolve_pairs(job, pairs, identity_action, images, drop_merged)
        job.write(out, output_source, job.kept)
    return job.report


@dataclass
class _SharedImages:
    """Near-duplicate images of two identities.

    Attributes:
        max_cosine: cosine similarity of the most similar pair.
    """

    first: set[int] = field(default_factory=set)
    second: set[int] = field(default_factory=set)
    max_cosine: float = -1.0
    example: tuple[int, int] = (-1, -1)


def similar_identities(
    source: Source,
    embedding: Floats,
    kept: NDArray[np.bool_],
    *,
    mean_threshold: float,
    image_threshold: float | None,
    backend: Backend,
) -> list[IdentityPair]:
    """Compare the mean embeddings of all identities, and their images.

    Two identities are considered one person if their means are similar enough, or if half of the images of the smaller
    identity are near-duplicates of images of the other. Pairs with fewer images in common are returned, too.

    Args:
        embedding: ``(N, d)`` embeddings of the images.
        kept: ``(N,)`` mask of the images to compare.
        mean_threshold: minimum cosine similarity of two means.
        image_threshold: minimum cosine similarity of near-duplicate images; None does not compare images.
    """
    assert source.labels is not None
    labels, people = source.labels, len(source.identities)
    images = np.bincount(labels[kept], minlength=people)
    means = identity_means(embedding, labels, kept, people)
    alike: set[tuple[int, int]] = set()
    for block in similar_pairs(means, mean_threshold, "comparing identities", backend):
        alike |= set(zip(block.first.tolist(), block.second.tolist(), strict=True))
    shared = (
        {} if image_threshold is None else _shared_images(labels, embedding, kept, image_threshold, backend)
    )
    pairs = []
    for first, second in sorted(alike | shared.keys()):
        images_in_common = shared.get((first, second), _SharedImages())
        smaller = images_in_common.first if images[first] < images[second] else images_in_common.second
        share = len(smaller) / int(min(images[first], images[second]))
        cosine = float(means[first] @ means[second])
        details = {
            "mean_cosine": round(cosine, 4),
            "similar_images": len(smaller),
            "share": round(share, 4),
            "highest_cosine": round(images_in_common.max_cosine, 4) if smaller else None,
            "example": [source.location(index) for index in images_in_common.example] if smaller else None,
        }
        pairs.append(
            IdentityPair(first, second, (first, second) in alike or share >= SHARED, cosine, details)
        )
    return pairs


def _shared_images(
    labels: NDArray[np.int64], embedding: Floats, kept: NDArray[np.bool_], threshold: float, backend: Backend
) -> dict[tuple[int, int], _SharedImages]:
    """The near-duplicates of pairs of identities, by the labels of the pair, lower label first."""
    rows = np.flatnonzero(kept)
    shared: dict[tuple[int, int], _SharedImages] = {}
    for block in similar_pairs(
        EmbeddingSubset(embedding, rows), threshold, "comparing images of different identities", backend
    ):
        earlier, later = rows[block.first], rows[block.second]
        swapped = labels[earlier] > labels[later]
        earlier, later = np.where(swapped, later, earlier), np.where(swapped, earlier, later)
        across = labels[earlier] != labels[later]
        for first, second, cosine in zip(
            earlier[across].tolist(), later[across].tolist(), block.cosine[across].tolist(), strict=True
        ):
            pair = shared.setdefault((int(labels[first]), int(labels[second])), _SharedImages())
            pair.first.add(first)
            pair.second.add(second)
            if cosine > pair.max_cosine:
                pair.max_cosine, pair.example = cosine, (first, second)
    return shared


def _drop_near_duplicates(
    job: CurationJob,
    embeddings: SourceEmbeddings,
    rows: NDArray[np.int64],
    thresholds: DedupThresholds,
    embedder: SourceEmbedder,
) -> None:
    """Drop each of the given images that is a near-duplicate of a better one."""
    rows = rows[job.kept[rows]]
    if embeddings.quality is not None:
        rows = rows[np.argsort(-embeddings.quality[rows], kind="stable")]
    subset = EmbeddingSubset(embeddings.embedding, rows)
    duplicates = find_near_duplicates(subset, thresholds.threshold, embedder.search)
    for position in np.flatnonzero(duplicates.original >= 0).tolist():
        job.drop(
            int(rows[position]),
            "near-duplicate",
            resembles=job.source.location(int(rows[duplicates.original[position]])),
            cosine=round(float(duplicates.cosine[position]), 4),
        )


def _drop_outliers(job: CurationJob, embeddings: SourceEmbeddings, thresholds: DedupThresholds) -> None:
    """Report how similar images are to the others of their identity, and drop those that are too dissimilar."""
    labels = job.source.labels
    assert labels is not None
    own_cosine = np.full(len(labels), np.nan, dtype=np.float32)
    for rows in rows_by_label(labels):
        rows = rows[job.kept[rows]]
        if len(rows) > 1:
            own_cosine[rows] = leave_one_out_cosines(np.asarray(embeddings.embedding[rows]))
    known = np.flatnonzero(np.isfinite(own_cosine))
    job.report["own_cosine"] = {
        "images": len(known),
        "quantiles": {
            f"{share:g}": round(float(np.quantile(own_cosine[known], share)), 4)
            for share in QUANTILES
            if len(known)
        },
    }
    if thresholds.min_own_cosine is None:
        return
    for index in known[own_cosine[known] < thresholds.min_own_cosine].tolist():
        job.drop(
            index,
            "far from its identity",
            resembles=identity_of(job.source, index),
            cosine=round(float(own_cosine[index]), 4),
        )
