"""Pictures to rows: loading, detection and alignment in threads, ahead of the network in others; memory is bounded."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.detection import Detector
from facerts.images import decode
from facerts.scoring.prepare import Picture, Prepared, prepare
from facerts.scoring.row_builder import RowBuilder, Scored

Item = TypeVar("Item")
Result = TypeVar("Result")


def pictures_of(source: Source, start: int = 0, stop: int | None = None) -> Iterator[Picture]:
    """A source's pictures, some or all, in order."""

    def load(index: int) -> NDArray[np.uint8]:
        return decode(source.read(index), where=source.location(index))

    for index in range(start, len(source) if stop is None else stop):
        yield Picture(source.location(index), partial(load, index))


def score_images(
    judge: RowBuilder,
    pictures: Iterable[Picture],
    *,
    detector: Detector | None = None,
    largest: bool = False,
    resize_crops: bool = False,
    batch_size: int = 64,
    workers: int | None = None,
    runs: int = 1,
    block: int | None = None,
) -> Iterator[list[Scored]]:
    """Score pictures in order: for each the rows of its faces, or one row that says why there is none.

    Args:
        judge: makes the rows, by its model's outputs.
        pictures: aligned crops, or photos where there is a detector; taken as they are needed.
        detector: finds the faces in photos; None where pictures are aligned crops.
        largest: of several faces in a photo score the largest alone.
        resize_crops: squares of any size are aligned crops; otherwise those of 112 x 112 alone.
        batch_size: least crops in a call of the model, as long as there are pictures.
        workers: threads that load, detect and align; None for one per core.
        runs: calls of the model at the same time.
        block: pictures of which no batch holds both sides of a border between two blocks, so that the numbers of a
            block do not depend on what was scored before; None for one block of all.

    Raises:
        ModelError: faces are to be accepted by quality, and the model has none.
    """
    with (
        ThreadPoolExecutor(workers or os.cpu_count() or 1) as preparing,
        ThreadPoolExecutor(runs) as running,
    ):
        prepared = _ahead(
            preparing,
            partial(prepare, detector=detector, largest=largest, resize_crops=resize_crops),
            pictures,
            2 * batch_size * runs,
        )
        batches = _batches(prepared, batch_size, block)
        for batch in _ahead(running, partial(score_batch, judge), batches, runs + 1):
            yield from batch


def score_batch(judge: RowBuilder, pictures: Sequence[Prepared]) -> list[list[Scored]]:
    """The rows of each of some pictures, whose crops the model is given together."""
    crops = [crop for picture in pictures for crop in picture.crops]
    if not crops:
        return [judge.rows(picture, None) for picture in pictures]
    outputs = judge.model(np.stack(crops))
    ends = np.cumsum([len(picture.crops) for picture in pictures])
    return [
        judge.rows(picture, outputs.take(np.arange(end - len(picture.crops), end)))
        for picture, end in zip(pictures, ends, strict=True)
    ]


def _batches(prepared: Iterable[Prepared], batch_size: int, block: int | None) -> Iterator[list[Prepared]]:
    waiting: list[Prepared] = []
    crops = 0
    for number, picture in enumerate(prepared, 1):
        waiting.append(picture)
        crops += len(picture.crops)
        if crops >= batch_size or (block is not None and number % block == 0):
            yield waiting
            waiting, crops = [], 0
    if waiting:
        yield waiting


def _ahead(
    pool: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item], depth: int
) -> Iterator[Result]:
    """The function of each item, in order, computed by a pool up to ``depth`` items ahead."""
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # After an error, or where the caller wants no more, nothing that has not begun is worth beginning.
        for future in waiting:
            future.cancel()
