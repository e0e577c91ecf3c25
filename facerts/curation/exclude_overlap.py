"""A data set without the people of the benchmarks that its models are to be judged on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks import is_pair_benchmark, is_template_benchmark, open_benchmarks, open_templates
from facerts.curation.curation_job import Making, Settings, making
from facerts.curation.embeddings import Embedded, Embedding
from facerts.curation.identity_means import identity_means
from facerts.curation.output_spec import Target
from facerts.curation.pairwise import check_threshold
from facerts.datasets import Joined, Source, open_images
from facerts.detection.base import Detector
from facerts.embedding.aligned import alignment_notes
from facerts.embedding.search import find
from facerts.errors import DataError
from facerts.io.progress import progress_bar
from facerts.io.versions import installed_versions

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
# Identities on either side of the threshold that a report shows.
SHOWN = 20
# Pictures that are compared with the benchmark's at a time.
BLOCK = 4096


class Nearest:
    """The most similar picture of the benchmark to each identity, as far as it was looked for.

    Attributes:
        cosine: ``(C,)`` of it.
        row: ``(C,)`` its number in the benchmark.
        picture: ``(C,)`` the picture of the identity that is so similar; −1 where it is the mean.
    """

    def __init__(self, people: int) -> None:
        self.cosine = np.full(people, -np.inf, dtype=np.float32)
        self.row = np.full(people, -1, dtype=np.int64)
        self.picture = np.full(people, -1, dtype=np.int64)

    def add(
        self,
        labels: NDArray[np.int64],
        cosine: NDArray[np.float32],
        row: NDArray[np.int64],
        picture: NDArray[np.int64],
    ) -> None:
        """Take in what was found for some labels; a label may come several times."""
        order = np.argsort(cosine, kind="stable")
        order = order[cosine[order] > self.cosine[labels[order]]]
        # Of several rows for one label the last one, which is the most similar, stays.
        self.cosine[labels[order]] = cosine[order]
        self.row[labels[order]] = row[order]
        self.picture[labels[order]] = picture[order]


def disjoin(
    source: Source,
    benchmarks: Sequence[str | Path],
    out: Target,
    embedding: Embedding,
    *,
    threshold: float = 0.5,
    single_images: bool = False,
    align_benchmarks: Detector | None = None,
    settings: Settings | None = None,
) -> dict[str, Any]:
    """Write a source without the identities that look like somebody in a benchmark.

    An identity goes as a whole where the mean of its pictures is at least so similar to any picture of a benchmark, or,
    if that is asked for, where one of its pictures is.

    Args:
        source: of aligned pictures with identities.
        benchmarks: verification sets and sets of templates, of which the pictures count that they name, or any other
            pictures.
        out: for the identities that stay.
        embedding: how pictures are embedded and searched.
        threshold: least cosine of two that may be one person.
        single_images: compare the identities' single pictures too.
        align_benchmarks: finds the faces where the benchmarks' pictures are photos; None where they are aligned crops.
        settings: of the command.

    Returns:
        The report.

    Raises:
        Error: there are no identities, a data set cannot be read or written, or the model cannot be used.
    """
    check_threshold(threshold, "--threshold")
    if source.labels is None:
        raise DataError(f"{source.name}: identities are to be left out, and this source has none")
    others = Joined([open_benchmark_images(path) for path in benchmarks])
    told = {"threshold": threshold, "single_images": single_images, **embedding.told()}
    told |= {"align_benchmarks": align_benchmarks and align_benchmarks.identity}
    with making(source, [out], settings or Settings(), told, installed_versions()) as made:
        known = embedding.of(others, made.scratch, align_benchmarks)
        made.report["benchmarks"] = {
            "name": others.name,
            "images": len(others),
            "unreadable": list(known.unreadable.values()),
            "notes": [] if align_benchmarks else alignment_notes(others),
        }
        found = embedding.of(source, made.scratch)
        for index, problem in sorted(found.unreadable.items()):
            made.leave_out(index, "cannot be read", error=problem)
        nearest = _compare(made, found, known, embedding, single_images)
        _leave_out(made, others, nearest, threshold)
        made.write(out, source, made.kept)
    return made.report


def open_benchmark_images(path: str | Path) -> Source:
    """The pictures that a benchmark's pairs or templates name, or all those of another source.

    Raises:
        DataError: nothing there, or broken.
    """
    if Path(path).is_dir() and is_template_benchmark(path):
        return open_templates(path).images
    if Path(path).is_dir() and is_pair_benchmark(path):
        found = [benchmark.images for benchmark in open_benchmarks(path)]
        return found[0] if len(found) == 1 else Joined(found)
    return open_images(path)


def _compare(
    made: Making, found: Embedded, known: Embedded, embedding: Embedding, single_images: bool
) -> Nearest:
    """Means, and single pictures where asked for, against all pictures of the benchmarks."""
    labels, people = made.source.labels, len(made.source.identities)
    assert labels is not None
    numbers = np.flatnonzero(known.readable)
    gallery = np.asarray(known.embedding[numbers])
    nearest = Nearest(people)
    with_pictures = np.unique(labels[made.kept])
    means = identity_means(found.embedding, labels, made.kept, people)
    for whose in _blocks(with_pictures, "comparing identities with the benchmark", "identities"):
        best = find(gallery, means[whose], 1, embedding.search)
        nearest.add(whose, best.scores[:, 0], numbers[best.templates[:, 0]], np.full(len(whose), -1))
    if single_images:
        for rows in _blocks(np.flatnonzero(made.kept), "comparing pictures with the benchmark", "images"):
            best = find(gallery, np.asarray(found.embedding[rows]), 1, embedding.search)
            nearest.add(labels[rows], best.scores[:, 0], numbers[best.templates[:, 0]], rows)
    return nearest


def _blocks(rows: NDArray[np.int64], text: str, unit: str) -> Iterator[NDArray[np.int64]]:
    """Rows a block at a time, with a progress bar."""
    with progress_bar() as bar:
        task = bar.add_task(text, total=len(rows), unit=unit)
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            yield block
            bar.advance(task, len(block))


def _leave_out(made: Making, others: Source, nearest: Nearest, threshold: float) -> None:
    """Leave out the identities that look like somebody, and tell how similar all of them are."""
    source = made.source
    assert source.labels is not None

    def told(label: int) -> dict[str, Any]:
        picture = int(nearest.picture[label])
        return {
            "resembles": others.location(int(nearest.row[label])),
            "cosine": round(float(nearest.cosine[label]), 4),
            "by": "mean" if picture < 0 else source.location(picture),
        }

    goes = nearest.cosine >= threshold
    for index in np.flatnonzero(goes[source.labels] & made.kept).tolist():
        made.leave_out(index, "identity resembles a benchmark's", **told(int(source.labels[index])))
    order = np.argsort(-nearest.cosine, kind="stable")
    kept = order[~goes[order] & np.isfinite(nearest.cosine[order])]
    measured = nearest.cosine[np.isfinite(nearest.cosine)]
    made.report["overlap"] = {
        "identities": int(goes.sum()),
        "quantiles": {f"{share:g}": round(float(np.quantile(measured, share)), 4) for share in QUANTILES},
        "left_out": [
            {"identity": source.identities[label], **told(label)}
            for label in order[: min(SHOWN, goes.sum())].tolist()
        ],
        "nearest_kept": [
            {"identity": source.identities[label], **told(label)} for label in kept[:SHOWN].tolist()
        ],
    }
