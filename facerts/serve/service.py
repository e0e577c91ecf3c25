"""Uploads to answers: pictures in threads, their crops through one batcher."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.detection import Detection, Detector
from facerts.embedding import FaceOutputs
from facerts.errors import ModelError
from facerts.images import CROP_SIZE, decode
from facerts.scoring import LazyImage, RowBuilder, ScoredFace, Scorer
from facerts.scoring.prepare import PreparedImage, prepare, printable
from facerts.serve.answers import Face, Options, Picture, Scores
from facerts.serve.batching import Batcher
from facerts.serve.metrics import Metrics
from facerts.serve.refusal import RefusedError
from facerts.serve.settings import Settings
from facerts.serve.uploads import Upload

# Pictures whose crops wait, for each place in a run: enough that the next run is full, and no more in memory.
AHEAD = 4
THE_PICTURE = "the picture"


@dataclass
class _Looked:
    """What is known of a picture besides its crops."""

    width: int | None = None
    height: int | None = None
    found: int = 0


class Service:
    """Scores pictures for many requests at once; lives in one event loop.

    Args:
        scorer: with the detector, if any.
        settings: limits and defaults.
        metrics: that it counts in.

    Raises:
        ModelError: the model has no such threshold, or no quality to accept faces by.
    """

    def __init__(self, scorer: Scorer, settings: Settings, metrics: Metrics) -> None:
        self.scorer = scorer
        self.settings = settings
        self.metrics = metrics
        # The first run is slow and may fail: both before anybody asks.
        black = np.zeros((1, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)
        self.has_quality = scorer.embed(black).quality is not None
        self.judge = self._judge(settings.min_quality, settings.keep)
        self.working = 0
        self._slots = asyncio.Semaphore(AHEAD * scorer.embedder.batch_size * scorer.parallel_batches)
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="pictures")
        self._batcher = Batcher(
            scorer.embedder,
            size=scorer.embedder.batch_size,
            wait=settings.batch_wait,
            runs=scorer.parallel_batches,
            watch=metrics.run,
        )

    @property
    def queued(self) -> int:
        """Crops that wait for the network."""
        return self._batcher.waiting

    @property
    def full(self) -> bool:
        """Whether the next request would be turned away."""
        return self.working >= self.settings.queue

    def check_place(self) -> None:
        """
        Raises:
            RefusedError: all places are taken.
        """
        if self.full:
            raise RefusedError("busy", f"{self.settings.queue} requests are being worked on; ask again later")

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among the requests that are worked on.

        Raises:
            RefusedError: all are taken.
        """
        self.check_place()
        self.working += 1
        try:
            yield
        finally:
            self.working -= 1

    async def close(self) -> None:
        """Answer what has begun, and end."""
        await self._batcher.close()
        self._threads.shutdown()

    def judge_for(self, options: Options) -> RowBuilder:
        """What decides on a request's faces.

        Raises:
            RefusedError: the model has no such threshold, or no quality to accept faces by.
        """
        if options.keep is None and options.min_quality is None:
            return self.judge
        try:
            return self._judge(options.min_quality, options.keep)
        except ModelError as error:
            raise RefusedError("invalid", str(error)) from error

    def detector_for(self, options: Options) -> Detector | None:
        """What finds a request's faces; None where the pictures are crops.

        Raises:
            RefusedError: nothing does.
        """
        detector = self.scorer.detector
        if options.aligned is False and detector is None:
            raise RefusedError(
                "invalid", "aligned: this service has no detector, so pictures must be aligned crops"
            )
        return None if options.aligned else detector

    async def score(self, uploads: Sequence[Upload], options: Options) -> Scores:
        """Score pictures; one that cannot be read has an error in its place.

        Raises:
            RefusedError: the options are not for this model or service.
            ModelError: the model fails on a picture.
        """
        judge, detector = self.judge_for(options), self.detector_for(options)
        tasks = [
            asyncio.ensure_future(self._score_one(upload, judge, detector, options)) for upload in uploads
        ]
        try:
            pictures = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        for picture in pictures:
            self.metrics.picture([face.accepted for face in picture.faces], failed=picture.error is not None)
        embedder = self.scorer.embedder
        return Scores(
            model=embedder.name,
            model_sha256=embedder.sha256,
            min_quality=judge.min_quality,
            pictures=pictures,
        )

    def _judge(self, min_quality: float | None, keep: float | None) -> RowBuilder:
        judge = self.scorer.row_builder(min_quality=min_quality, keep=keep)
        if judge.min_quality is not None and not self.has_quality:
            raise ModelError(
                f"{self.scorer.embedder.name} has no quality, so there is nothing to accept faces by"
            )
        return judge

    async def _score_one(
        self, upload: Upload, judge: RowBuilder, detector: Detector | None, options: Options
    ) -> Picture:
        async with self._slots:
            prepared, looked = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._prepare, upload.data, detector, options
            )
            outputs: FaceOutputs | None = None
            if prepared.crops:
                outputs = await self._batcher(np.stack(prepared.crops))
        scored = judge.rows(prepared, outputs)
        return Picture(
            name=None if upload.name is None else printable(upload.name),
            width=looked.width,
            height=looked.height,
            found=looked.found,
            faces=[
                _face(entry, embedding=options.embeddings) for entry in scored if entry.row.face is not None
            ],
            # It stands with the picture that it is about.
            error=None if prepared.error is None else prepared.error.removeprefix(f"{THE_PICTURE}: "),
        )

    def _prepare(
        self, data: bytes, detector: Detector | None, options: Options
    ) -> tuple[PreparedImage, _Looked]:
        """In a thread: the crops of a picture, and what else it is."""
        looked = _Looked()

        def load() -> NDArray[np.uint8]:
            image = decode(data, where=THE_PICTURE, max_pixels=self.settings.max_pixels)
            looked.height, looked.width = image.shape[:2]
            return image

        finder = None if detector is None else _Largest(detector, self.settings.max_faces)
        asked = options.resize_crops
        resize = self.scorer.resize_crops if asked is None else asked
        prepared = prepare(LazyImage(THE_PICTURE, load), finder, largest=options.largest, resize_crops=resize)
        looked.found = len(prepared.crops) if finder is None else finder.found
        return prepared, looked


class _Largest:
    """A detector that gives no more than so many faces of a picture, and remembers how many it found."""

    def __init__(self, detector: Detector, most: int) -> None:
        self.identity = detector.identity
        self.found = 0
        self._detector = detector
        self._most = most

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        faces = self._detector(image)
        self.found = len(faces)
        return faces[: self._most]


def _face(scored: ScoredFace, *, embedding: bool) -> Face:
    row = scored.row
    points = row.points
    return Face(
        box=row.box,
        points=None if points is None else [points[at : at + 2] for at in range(0, len(points), 2)],
        det_score=row.det_score,
        quality=row.quality,
        percentile=row.percentile,
        uncertainty=row.uncertainty,
        accepted=row.accepted,
        reason=row.reason,
        # The digits that float32 has, and no more.
        embedding=[float(str(value)) for value in scored.embedding]
        if embedding and scored.embedding is not None
        else None,
    )
