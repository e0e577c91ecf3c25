"""Remove the people of benchmarks from a data set, so that models trained on it can be evaluated fairly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from facerts.curation.embeddings import SourceEmbedder, SourceEmbeddings
from facerts.curation.output_spec import CurationJob, OutputSpec, Report, open_job
from facerts.curation.pairwise import check_threshold, identity_means
from facerts.datasets import (
    Joined,
    Source,
    is_pair_benchmark,
    is_template_benchmark,
    open_benchmarks,
    open_images,
    open_templates,
)
from facerts.detection.detector import FaceFinder
from facerts.embedding.aligned import alignment_notes
from facerts.errors import DataError
from facerts.io.progress import progress_bar
from facerts.metrics.identification import search

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
# Identities on each side of the threshold that the report shows.
MAX_SHOWN = 20
# Rows compared with the benchmark at a time.
BLOCK_SIZE = 4096


class NearestMatches(NamedTuple):
    """The most similar benchmark image of each identity.

    Attributes:
        cosine: ``(C,)`` its cosine similarity.
        row: ``(C,)`` its index in the benchmark.
        image: ``(C,)`` the index of the image of the identity that it is similar to; −1 for the mean.
    """

    cosine: NDArray[np.float32]
    row: NDArray[np.int64]
    image: NDArray[np.int64]


def exclude_overlap(
    source: Source,
    benchmarks: Sequence[str | Path],
    out: OutputSpec,
    embedder: SourceEmbedder,
    *,
    threshold: float = 0.5,
    single_images: bool = False,
    detector: FaceFinder | None = None,
) -> Report:
    """Write a source without the identities that look like somebody in a benchmark.

    An identity is dropped as a whole if the mean of its embeddings, or with ``single_images`` any of its embeddings, is
    similar enough to an image of a benchmark.

    Of verification and template sets, only images in pairs or templates count. ``threshold`` is the minimum cosine
    similarity of images that may show one person; ``detector`` finds the faces in photos, None for aligned crops.
    """
    check_threshold(threshold, "threshold")
    if source.labels is None:
        raise DataError(f"{source.name}: there are no identities to exclude")
    benchmark = Joined([open_benchmark_images(path) for path in benchmarks])
    settings = {"threshold": threshold, "single_images": single_images, **embedder.settings(detector)}
    with open_job(source, [out], settings) as job:
        gallery = embedder.embed(benchmark, job.scratch, detector)
        job.report["benchmarks"] = {
            "name": benchmark.name,
            "images": len(benchmark),
            "unreadable": list(gallery.unreadable.values()),
            "notes": [] if detector else alignment_notes(benchmark),
        }
        embeddings = embedder.embed(source, job.scratch)
        job.drop_unreadable(embeddings.unreadable)
        matches = _compare(job, embeddings, gallery, single_images)
        _drop_matches(job, benchmark, matches, threshold)
        job.write(out, source, job.kept)
    return job.report


def open_benchmark_images(path: str | Path) -> Source:
    """The images in the pairs or templates of a benchmark, or all images of another source."""
    if Path(path).is_dir() and is_template_benchmark(path):
        return open_templates(path).images
    if Path(path).is_dir() and is_pair_benchmark(path):
        images = [benchmark.images for benchmark in open_benchmarks(path)]
        return images[0] if len(images) == 1 else Joined(images)
    return open_images(path)


def _compare(
    job: CurationJob,
    embeddings: SourceEmbeddings,
    benchmark: SourceEmbeddings,
    single_images: bool,
) -> NearestMatches:
    """Compare means, and optionally single images, with all images of the benchmarks."""
    labels, people = job.source.labels, len(job.source.identities)
    assert labels is not None
    indices = np.flatnonzero(benchmark.readable)
    gallery = np.asarray(benchmark.embedding[indices])
    cosine, row, image = np.full(people, -np.inf, np.float32), np.full(people, -1), np.full(people, -1)

    def add(of: NDArray[np.int64], vectors: NDArray[np.float32], images: NDArray[np.int64]) -> None:
        found = search(gallery, vectors, 1)
        scores = found.scores[:, 0]
        order = np.argsort(scores, kind="stable")
        order = order[scores[order] > cosine[of[order]]]
        # Of several rows with one label the last one, which is the most similar, wins.
        at = of[order]
        cosine[at], row[at], image[at] = scores[order], indices[found.templates[order, 0]], images[order]

    means = identity_means(embeddings.embedding, labels, job.kept, people)
    for block in _blocks(np.unique(labels[job.kept]), "comparing identities with the benchmark", "identities"):
        add(block, means[block], np.full(len(block), -1))
    if single_images:
        for rows in _blocks(np.flatnonzero(job.kept), "comparing images with the benchmark", "images"):
            add(labels[rows], np.asarray(embeddings.embedding[rows]), rows)
    return NearestMatches(cosine, row, image)


def _blocks(rows: NDArray[np.int64], text: str, unit: str) -> Iterator[NDArray[np.int64]]:
    with progress_bar() as bar:
        task = bar.add_task(text, total=len(rows), unit=unit)
        for start in range(0, len(rows), BLOCK_SIZE):
            block = rows[start : start + BLOCK_SIZE]
            yield block
            bar.advance(task, len(block))


def _drop_matches(job: CurationJob, benchmark: Source, matches: NearestMatches, threshold: float) -> None:
    """Drop the identities that look like somebody in the benchmark, and report all similarities."""
    source = job.source
    assert source.labels is not None

    def details(label: int) -> dict[str, object]:
        image = int(matches.image[label])
        return {
            "resembles": benchmark.location(int(matches.row[label])),
            "cosine": round(float(matches.cosine[label]), 4),
            "by": "mean" if image < 0 else source.location(image),
        }

    dropped = matches.cosine >= threshold
    for index in np.flatnonzero(dropped[source.labels] & job.kept).tolist():
        job.drop(index, "identity resembles a benchmark's", **details(int(source.labels[index])))
    order = np.argsort(-matches.cosine, kind="stable")
    kept = order[~dropped[order] & np.isfinite(matches.cosine[order])]
    finite = matches.cosine[np.isfinite(matches.cosine)]
    job.report["overlap"] = {
        "identities": int(dropped.sum()),
        "quantiles": {f"{share:g}": round(float(np.quantile(finite, share)), 4) for share in QUANTILES},
        "left_out": [
            {"identity": source.identities[label], **details(label)}
            for label in order[: min(MAX_SHOWN, dropped.sum())].tolist()
        ],
        "nearest_kept": [
            {"identity": source.identities[label], **details(label)} for label in kept[:MAX_SHOWN].tolist()
        ],
    }
