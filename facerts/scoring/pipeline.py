"""Images to rows in bounded memory: threads load, detect and align ahead of the threads that run the model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import accumulate
from operator import attrgetter

import numpy as np

from facerts.detection import FaceFinder
from facerts.embedding.onnx_embedder import outputs_of_crops
from facerts.io.map_ahead import map_ahead
from facerts.scoring.face import Face
from facerts.scoring.prepare import LazyImage, PreparedImage, prepare
from facerts.scoring.row_builder import RowBuilder

# Crops per batch of an embedder that does not say how many it wants.
BATCH_SIZE = 64


def score_images(
    row_builder: RowBuilder,
    images: Iterable[LazyImage],
    *,
    detector: FaceFinder | None = None,
    largest: bool = False,
    max_faces: int | None = None,
    min_face_size: float = 0,
    batch_size: int | None = None,
    workers: int | None = None,
    parallel_batches: int | None = None,
    block_size: int | None = None,
) -> Iterator[list[Face]]:
    """Score images in order: for each the rows of its faces, or one row with the reason why there is none.

    One alone is scored without threads.

    Args:
        detector: finds the faces in photos; None if every image is an aligned crop.
        largest: score only the largest face of each image.
        max_faces: otherwise, maximum number of faces scored in an image, largest first; None for all.
        min_face_size: see ``prepare``.
        batch_size: minimum crops per batch, as long as there are images; None for what the model says.
        workers: threads that load, detect and align; None for one per core.
        parallel_batches: batches in the model at a time; None for what the model says, or one.
        block_size: no batch crosses a multiple of this many images, so that the scores of a block do not depend on
            the images before it; None for no such limit.
    """
    prepare_image = partial(
        prepare, detector=detector, max_faces=1 if largest else max_faces, min_face_size=min_face_size
    )
    if isinstance(images, Sequence) and len(images) == 1:
        yield from score_batch(row_builder, [prepare_image(images[0])])
        return
    batch_size = batch_size or int(getattr(row_builder.model, "batch_size", BATCH_SIZE))
    parallel_batches = parallel_batches or int(getattr(row_builder.model, "parallel_batches", 1))
    with (
        ThreadPoolExecutor(workers or os.cpu_count() or 1) as loaders,
        ThreadPoolExecutor(parallel_batches) as model_threads,
    ):
        prepared = map_ahead(
            loaders, prepare_image, images, 2 * batch_size * parallel_batches, size=attrgetter("nbytes")
        )
        # Closed before the threads, which may wait for what they prepared to be taken.
        with closing(prepared):  # type: ignore[type-var]
            batches = _batches(prepared, batch_size, block_size)
            for batch in map_ahead(model_threads, partial(score_batch, row_builder), batches, parallel_batches + 1):
                yield from batch


def score_batch(row_builder: RowBuilder, images: Sequence[PreparedImage]) -> list[list[Face]]:
    """The rows of each image; the crops of all of them are one batch."""
    crops = [crop for image in images for crop in image.crops]
    if not crops:
        return [row_builder.rows(image, None) for image in images]
    outputs = outputs_of_crops(row_builder.model, np.stack(crops))
    starts = accumulate((len(image.crops) for image in images), initial=0)
    return [row_builder.rows(image, outputs, start) for image, start in zip(images, starts, strict=False)]


def _batches(
    prepared: Iterable[PreparedImage], batch_size: int, block_size: int | None
) -> Iterator[list[PreparedImage]]:
    batch: list[PreparedImage] = []
    crops = 0
    for count, image in enumerate(prepared, 1):
        batch.append(image)
        crops += len(image.crops)
        if crops >= batch_size or (block_size is not None and count % block_size == 0):
            yield batch
            batch, crops = [], 0
    if batch:
        yield batch
