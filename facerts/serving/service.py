"""Uploads to scores: images are prepared in threads, and their crops go through one batcher."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.detection import AutoDetector, FaceFinder
from facerts.embedding import FaceOutputs
from facerts.errors import Error, ModelError
from facerts.galleries import Gallery, Match
from facerts.galleries.enroll import PROBE_KEEP, default_threshold
from facerts.images import CROP_SIZE, decode
from facerts.scoring import Face, LazyImage, MatchRule, Row, RowBuilder, Scorer
from facerts.scoring.prepare import PreparedImage, prepare, storable
from facerts.scoring.reasons import NO_FACE, in_words
from facerts.serving import schemas
from facerts.serving.batching import Batcher
from facerts.serving.error_responses import LOG, RequestError
from facerts.serving.prometheus import Metrics
from facerts.serving.schemas import CommonOptions, ImageResult, Options, SearchOptions, VerifyOptions
from facerts.serving.settings import Settings
from facerts.serving.uploads import Upload

# Images in memory for each crop of a batch: enough to fill the next batches, and no more.
AHEAD = 4
# What errors call an image; removed again, because they stand beside it in the response.
IMAGE = "the image"


@dataclass(frozen=True)
class _ScoredImage:
    """What the response says of an image, and its faces."""

    result: ImageResult
    faces: list[Face]


class UnusableImagesError(Error):
    """Images that could not be scored or compared; ``images`` has the reason for each."""

    def __init__(self, message: str, images: Sequence[ImageResult]) -> None:
        super().__init__(message)
        self.images = images


@contextmanager
def gallery_errors() -> Iterator[None]:
    """Turn what goes wrong with a gallery in a database into an answer that says nothing of where it is."""
    try:
        yield
    except Error as error:
        LOG.error("%s", error)
        raise RequestError(
            "busy", "the gallery cannot be searched now; the service's log says why"
        ) from error


class Service:
    """Scores the images of many requests at once; belongs to one event loop.

    Args:
        scorer: the model, with a detector if images may be photos; one that opens lazily is opened now."""

    def __init__(self, scorer: Scorer, settings: Settings, metrics: Metrics) -> None:
        self.scorer = scorer
        self.settings = settings
        self.metrics = metrics
        model = scorer.model()
        # The first forward pass is slow and may fail; better now than with the first request.
        black = np.zeros((1, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)
        outputs = scorer.embed(black)
        self.has_quality = outputs.quality is not None
        if (detector := self._photo_detector()) is not None:
            detector(black[0])
        self.row_builder = self._row_builder(settings.min_quality, settings.keep)
        self.rule = self._default_rule()
        self.gallery: Gallery | None = None
        self.search_row_builder = self.row_builder
        if settings.gallery is not None:
            self.gallery = self._open_gallery(settings.gallery, outputs.embedding[0])
            if settings.min_quality is None and settings.keep is None:
                self.search_row_builder = self._row_builder(default_threshold(scorer, PROBE_KEEP), None)
        self.working = 0
        self._slots = asyncio.Semaphore(AHEAD * model.batch_size * model.parallel_batches)
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="images")
        self._batcher = Batcher(
            model,
            batch_size=model.batch_size,
            wait=settings.batch_wait,
            concurrency=model.parallel_batches,
            on_batch=metrics.batch.observe,
        )

    def _open_gallery(self, place: str | Path, embedding: NDArray[np.float32]) -> Gallery:
        gallery = Gallery(place)
        gallery.check_model(self.scorer)
        # Computed now rather than with the first request; and the gallery may not be one to search in.
        face = Face(Row("", model_sha256=self.scorer.recognizer.sha256), None, embedding)
        gallery.match([face], fpir=self.settings.fpir)
        return gallery

    @property
    def queued(self) -> int:
        """Number of crops that wait for the network."""
        return self._batcher.waiting

    def check_capacity(self) -> None:
        """Refuse a request while as many as allowed are being worked on."""
        if self.working >= self.settings.queue:
            raise RequestError(
                "busy", f"{self.settings.queue} requests are already being worked on; try again later"
            )

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among the requests that are worked on."""
        self.check_capacity()
        self.working += 1
        try:
            yield
        finally:
            self.working -= 1

    async def close(self) -> None:
        """Finish what has begun, and stop."""
        await self._batcher.close()
        self._threads.shutdown()

    def row_builder_for(self, options: CommonOptions, default: RowBuilder | None = None) -> RowBuilder:
        """What accepts or rejects the faces of a request.

        Args:
            default: for a request that sets no threshold; None for that of /v1/score."""
        if options.keep is None and options.min_quality is None:
            return default or self.row_builder
        with invalid_options():
            return self._row_builder(options.min_quality, options.keep)

    def detector_for(self, options: CommonOptions) -> FaceFinder | None:
        """What finds the faces of a request; None if its images are aligned crops."""
        if options.aligned is False and self.scorer.detector is None:
            raise RequestError(
                "invalid", "aligned: this service has no detector, so images must be aligned crops"
            )
        if options.aligned is None:
            return self.scorer.detector
        return None if options.aligned else self._photo_detector()

    async def score(self, uploads: Sequence[Upload], options: Options) -> schemas.Scores:
        """Score images; one that cannot be read has an error in its place."""
        row_builder = self.row_builder_for(options)
        scored = await self._score_all(uploads, row_builder, options)
        _check_any_usable(scored)
        return schemas.Scores(**self.header(row_builder), images=[image.result for image in scored])

    async def search(self, uploads: Sequence[Upload], options: SearchOptions) -> schemas.Matches:
        """Score images, and search for their faces in the gallery."""
        if (gallery := self.gallery) is None:
            raise RequestError(
                "invalid", "this service has no gallery to search in; start it with --gallery people.npz"
            )
        row_builder = self.row_builder_for(options, self.search_row_builder)
        fpir = options.fpir or self.settings.fpir
        scored = await self._score_all(uploads, row_builder, options)
        _check_any_usable(scored)
        faces = [face for image in scored for face in image.faces if face.row.face is not None]
        in_thread = partial(asyncio.get_running_loop().run_in_executor, self._threads)
        with gallery_errors():
            matches = await in_thread(partial(gallery.match, faces, fpir=fpir, k=options.k))
            threshold = await in_thread(gallery.threshold, fpir)
        for match in matches:
            self.metrics.searches.labels(match.decision.value).inc()
        found = iter(matches)
        images = [
            schemas.ImageMatches(
                **dict(image.result)
                | {"faces": [dict(face) | match_fields(next(found)) for face in image.result.faces]}
            )
            for image in scored
        ]
        return schemas.Matches(
            **self.header(row_builder), fpir=fpir, threshold=threshold.cosine, images=images
        )

    async def verify(self, uploads: Sequence[Upload], options: VerifyOptions) -> schemas.PairVerification:
        """Compare two images."""
        if len(uploads) != 2:
            raise RequestError("invalid", f"two images are compared, and this request has {len(uploads)}")
        with invalid_options():
            rule = self._rule(options)
        row_builder = self.row_builder_for(VerifyOptions(min_quality=rule.min_quality))
        scored = await self._score_all(uploads, row_builder, options)
        images = [image.result for image in scored]
        faces = [
            replace(image.faces[0], row=replace(image.faces[0].row, path=path))
            for path, image in zip(("the first image", "the second image"), scored, strict=True)
        ]
        result = rule.verify(*faces)
        if result.decision is None:
            problems = [
                f"{face.row.path}: {image.error or in_words([NO_FACE])}"
                for face, image in zip(faces, images, strict=True)
                if not image.faces
            ]
            raise UnusableImagesError("; ".join(problems), images)
        self.metrics.verifications.labels(result.decision).inc()
        return schemas.PairVerification.of(result, model=self.scorer.recognizer.name, images=images)

    def header(self, row_builder: RowBuilder) -> dict[str, Any]:
        """What every answer says of the model."""
        recognizer = self.scorer.recognizer
        return {
            "model": recognizer.name,
            "model_sha256": recognizer.sha256,
            "min_quality": row_builder.min_quality,
        }

    def _rule(self, options: VerifyOptions) -> MatchRule:
        settings = self.settings
        limit = options if options.keep is not None or options.min_quality is not None else settings
        return self.scorer.match_rule(
            fmr=options.fmr or settings.fmr,
            threshold=options.threshold,
            keep=limit.keep,
            min_quality=limit.min_quality,
        )

    def _default_rule(self) -> MatchRule | None:
        """What decides where a request sets nothing; None if the model has no match thresholds, and none was wanted."""
        try:
            return self._rule(VerifyOptions())
        except ModelError:
            if self.settings.fmr is not None:
                raise
            return None

    def _photo_detector(self) -> FaceFinder | None:
        """What finds the faces in an image that is certainly a photo."""
        detector = self.scorer.detector
        return detector.detector if isinstance(detector, AutoDetector) else detector

    def _row_builder(self, min_quality: float | None, keep: float | None) -> RowBuilder:
        row_builder = self.scorer.row_builder(self.scorer.min_quality(min_quality, keep))
        if row_builder.min_quality is not None and not self.has_quality:
            raise ModelError(
                f"{self.scorer.model().name} has no quality, so it cannot accept faces by a threshold"
            )
        return row_builder

    async def _score_all(
        self, uploads: Sequence[Upload], row_builder: RowBuilder, options: Options | VerifyOptions
    ) -> list[_ScoredImage]:
        detector = self.detector_for(options)
        tasks = [
            asyncio.ensure_future(self._score_one(upload, row_builder, detector, options))
            for upload in uploads
        ]
        try:
            scored = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        for image in scored:
            decisions = [face.row.accepted for face in image.faces if face.row.face is not None]
            self.metrics.count_image(decisions, failed=image.result.error is not None)
        return scored

    async def _score_one(
        self,
        upload: Upload,
        row_builder: RowBuilder,
        detector: FaceFinder | None,
        options: Options | VerifyOptions,
    ) -> _ScoredImage:
        async with self._slots:
            prepared = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._prepare, upload.data, detector, options
            )
            outputs: FaceOutputs | None = None
            if prepared.crops:
                outputs = await self._batcher(np.stack(prepared.crops))
        scored = row_builder.rows(prepared, outputs)
        embedding = isinstance(options, Options) and options.embeddings
        result = ImageResult(
            name=None if upload.name is None else storable(upload.name),
            width=None if prepared.size is None else prepared.size[1],
            height=None if prepared.size is None else prepared.size[0],
            found=prepared.found,
            faces=[
                schemas.FaceResult.of(face.row, embedding=face.vector if embedding else None)
                for face in scored
                if face.row.face is not None
            ],
            error=None if prepared.error is None else prepared.error.removeprefix(f"{IMAGE}: "),
        )
        return _ScoredImage(result, scored)

    def _prepare(
        self, data: bytes, detector: FaceFinder | None, options: Options | VerifyOptions
    ) -> PreparedImage:
        """The crops of an image; called in a thread."""
        load = partial(decode, data, where=IMAGE, max_pixels=self.settings.max_pixels, pillow=False)
        resize = self.scorer.resize_crops if options.resize_crops is None else options.resize_crops
        largest = not isinstance(options, Options) or options.largest
        max_faces = 1 if largest else self.settings.max_faces
        return prepare(
            LazyImage(IMAGE, load),
            detector,
            max_faces=max_faces,
            resize_crops=resize,
            min_face_size=self.scorer.min_face_size,
        )


@contextmanager
def invalid_options() -> Iterator[None]:
    """Turn what does not fit the model into the response to the request whose options ask for it."""
    try:
        yield
    except ModelError as error:
        raise RequestError("invalid", str(error)) from error


def _check_any_usable(scored: Sequence[_ScoredImage]) -> None:
    images = [image.result for image in scored]
    if any(image.error is None for image in images):
        return
    message = images[0].error or ""
    if len(images) > 1:
        message = f"none of the {len(images)} images could be scored; the first: {message}"
    raise UnusableImagesError(message, images)


def match_fields(match: Match | None) -> dict[str, Any]:
    """What the gallery says of a face or a track; None without a gallery."""
    if match is None:
        return {"decision": None, "candidates": []}
    candidates = [{"person": person, "cosine": cosine} for person, cosine in match.candidates]
    return {"decision": match.decision.value, "candidates": candidates}
