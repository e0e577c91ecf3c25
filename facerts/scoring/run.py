"""A scoring run over a source of any size, block by block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from facerts.datasets.source import Source
from facerts.io.files import sync_names
from facerts.scoring.blocks import Block, FileState, file_states
from facerts.scoring.copies import Copies
from facerts.scoring.job import BLOCK_SIZE, Job
from facerts.scoring.pipeline import lazy_images, score_images
from facerts.scoring.prepare import LazyImage
from facerts.scoring.row import Row
from facerts.scoring.scorer import Scorer


@dataclass(frozen=True)
class Task:
    """The options of a scoring run.

    Attributes:
        min_quality: accept faces with at least this quality; None makes no decision.
        largest: score only the largest face of each photo.
        copies: where to save crops and copies of images.
    """

    min_quality: float | None = None
    largest: bool = False
    copies: Copies = field(default_factory=Copies)

    def settings(self) -> dict[str, Any]:
        """The options as JSON values, for ``Job``."""
        return {
            "min_quality": self.min_quality,
            "largest": self.largest,
            "copies": {name: None if path is None else str(path) for name, path in vars(self.copies).items()},
        }


def score_spans(
    scorer: Scorer,
    source: Source,
    spans: Sequence[range],
    task: Task,
    advance: Callable[[int], None] | None = None,
    *,
    workers: int | None = None,
) -> Iterator[Block]:
    """Score spans of images, each into a block, in order; the copies of a block are on disk when it is yielded.

    Args:
        scorer: the model and the detector.
        source: the images.
        spans: indices of the images of each block; all spans but the last have the same length.
        task: the options.
        advance: called with the number of images scored since the last call.
        workers: threads that load, detect and align, with one batch in the model at a time; None for as many of both
            as keep all cores busy.

    Raises:
        ModelError: there is a minimum quality, and the model has no quality.
        Error: a copy cannot be written.
    """
    states: deque[list[FileState]] = deque()

    def images() -> Iterator[LazyImage]:
        for span in spans:
            # Taken before the files are read, so that a change while they are read is noticed.
            states.append(file_states(source, span))
            yield from lazy_images(source, span.start, span.stop)

    scored = score_images(
        scorer.row_builder(min_quality=task.min_quality),
        images(),
        detector=scorer.detector,
        largest=task.largest,
        resize_crops=scorer.resize_crops,
        batch_size=scorer.embedder.batch_size,
        workers=workers,
        parallel_batches=scorer.parallel_batches if workers is None else 1,
        block_size=len(spans[0]) if spans else None,
    )
    for span in spans:
        rows, copies = [], list[Path]()
        for index in span:
            faces = next(scored)
            copies += task.copies.save(source, index, faces)
            rows += [face.row for face in faces]
            if advance is not None:
                advance(1)
        sync_names(copies)
        yield Block(rows, states.popleft())


def score_rows(
    scorer: Scorer, source: Source, task: Task, advance: Callable[[int], None] | None = None
) -> Iterator[Row]:
    """The rows of all images in order, without a job: what was scored before an interruption is lost.

    Raises:
        Error: see ``score_spans``.
    """
    images = range(len(source))
    spans = [images[start : start + BLOCK_SIZE] for start in images[::BLOCK_SIZE]]
    for block in score_spans(scorer, source, spans, task, advance):
        yield from block.rows


def run_job(
    scorer: Scorer, source: Source, job: Job, task: Task, advance: Callable[[int], None] | None = None
) -> None:
    """Score the unfinished blocks of a job in this process.

    Raises:
        Error: see ``score_spans``.
    """
    missing = job.missing()
    blocks = score_spans(scorer, source, [job.span(number) for number in missing], task, advance)
    for number, block in zip(missing, blocks, strict=True):
        job.put(number, block)
