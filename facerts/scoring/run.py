"""A scoring run over a source of any size, block by block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from facerts.datasets.source import Source
from facerts.io.files import sync_names
from facerts.scoring.blocks import Block, State, states_of
from facerts.scoring.copies import Copies
from facerts.scoring.job import Job
from facerts.scoring.pipeline import pictures_of, score_images
from facerts.scoring.prepare import Picture
from facerts.scoring.scorer import Scorer


@dataclass(frozen=True)
class Task:
    """What is done with each picture.

    Attributes:
        min_quality: faces at or above it are accepted; None makes no decision.
        largest: of several faces in a photo score the largest alone.
        copies: what is put aside.
    """

    min_quality: float | None = None
    largest: bool = False
    copies: Copies = field(default_factory=Copies)

    def settings(self) -> dict[str, Any]:
        """As JSON holds them."""
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
    """Each of some runs of pictures as a block of rows, in order; its copies are on the disk.

    Args:
        scorer: scores.
        source: the pictures.
        spans: which of them, by their numbers; all but the last one equally long.
        task: what is done with each.
        advance: is called with the number of pictures that were scored, each time that some were.
        workers: threads that load, detect and align, beside one run of the network at a time; None for as many of
            both as keep all cores of the machine busy.

    Raises:
        ModelError: faces are to be accepted by quality, and the model has none.
        Error: a copy cannot be written.
    """
    states: deque[list[State]] = deque()

    def pictures() -> Iterator[Picture]:
        for span in spans:
            # Before they are read: what changes meanwhile has changed.
            states.append(states_of(source, span))
            yield from pictures_of(source, span.start, span.stop)

    scored = score_images(
        scorer.judge(min_quality=task.min_quality),
        pictures(),
        detector=scorer.detector,
        largest=task.largest,
        resize_crops=scorer.resize_crops,
        batch_size=scorer.embedder.batch_size,
        workers=workers,
        runs=scorer.runs if workers is None else 1,
        block=len(spans[0]) if spans else None,
    )
    for span in spans:
        rows, copies = [], list[Path]()
        for index in span:
            faces = next(scored)
            copies += task.copies.put(source, index, faces)
            rows += [face.row for face in faces]
            if advance is not None:
                advance(1)
        sync_names(copies)
        yield Block(rows, states.popleft())


def run_job(
    scorer: Scorer, source: Source, job: Job, task: Task, advance: Callable[[int], None] | None = None
) -> None:
    """Score the blocks of a job that are missing, in this process.

    Raises:
        Error: as ``score_spans``.
    """
    missing = job.missing()
    blocks = score_spans(scorer, source, [job.span(number) for number in missing], task, advance)
    for number, block in zip(missing, blocks, strict=True):
        job.put(number, block)
