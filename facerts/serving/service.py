"""Uploads to scores: images are prepared in threads, and their crops go through one batcher."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.detection import AutoDetector, FaceFinder
from facerts.embedding import FaceOutputs
from facerts.errors import Error, ModelError
from facerts.galleries import Gallery, Match
from facerts.galleries.enroll import PROBE_KEEP, default_threshold
from facerts.images import CROP_SIZE, decode
from facerts.scoring import LazyImage, MatchRule, Row, RowBuilder, ScoredFace, Scorer
from facerts.scoring.prepare import PreparedImage, prepare, storable
from facerts.scoring.reasons import NO_FACE, in_words
from facerts.serving.batching import Batcher
from facerts.serving.error_responses import LOG, RequestError
from facerts.serving.prometheus import Metrics
from facerts.serving.schemas import (
    Candidate,
    CommonOptions,
    FaceMatch,
    FaceResult,
    ImageMatches,
    ImageResult,
    Matches,
    Options,
    PairVerification,
    Scores,
    SearchOptions,
    VerifyOptions,
)
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
    faces: list[ScoredFace]


class UnusableImagesError(Error):
    """Images that could not be scored or compared; ``images`` has the reason for each."""

    def __init__(self, message: str, images: Sequence[ImageResult]) -> None:
        super().__init__(message)
        self.images = images


@contextmanager
def gallery_errors() -> Iterator[None]:
    """Turn what goes wrong with a gallery in a database into an answer that says nothing of where it is.

    Raises:
        RequestError: the gallery cannot be searched.
    """
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
        scorer: the model, with a detector if images may be photos; one that opens lazily is opened now.

    Raises:
        MissingModelError: the detector is not on this machine and cannot be downloaded.
    """

    def __init__(self, scorer: Scorer, settings: Settings, metrics: Metrics) -> None:
        self.scorer = scorer
        self.settings = settings
        self.metrics = metrics
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
            if self.row_builder.min_quality is None:
                self.search_row_builder = self._row_builder(default_threshold(scorer, PROBE_KEEP), None)
        self.working = 0
        self._slots = asyncio.Semaphore(AHEAD * scorer.embedder.batch_size * scorer.parallel_batches)
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="images")
        self._batcher = Batcher(
            scorer.embedder,
            batch_size=scorer.embedder.batch_size,
            wait=settings.batch_wait,
            concurrency=scorer.parallel_batches,
            on_batch=metrics.batch.observe,
        )

    def _open_gallery(self, place: str | Path, embedding: NDArray[np.float32]) -> Gallery:
        gallery = Gallery(place)
        gallery.check_model(self.scorer)
        # Computed now rather than with the first request; and the gallery may not be one to search in.
        face = ScoredFace(Row("", model_sha256=self.scorer.embedder.sha256), None, embedding)
        gallery.match([face], fpir=self.settings.fpir)
        return gallery

    @property
    def queued(self) -> int:
        """Number of crops that wait for the network."""
        return self._batcher.waiting

    def check_capacity(self) -> None:
        """
        Raises:
            RequestError: as many requests as allowed are being worked on.
        """
        if self.working >= self.settings.queue:
            raise RequestError(
                "busy", f"{self.settings.queue} requests are already being worked on; try again later"
            )

    @staticmethod
    def invalid_options() -> AbstractContextManager[None]:
        """What turns errors of a request's options into its response."""
        return _invalid_options()

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among the requests that are worked on.

        Raises:
            RequestError: all places are taken.
        """
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
            default: for a request that sets no threshold; None for that of /v1/score.

        Raises:
            RequestError: the model has no such threshold, or no quality to accept faces by.
        """
        if options.keep is None and options.min_quality is None:
            return default or self.row_builder
        with _invalid_options():
            return self._row_builder(options.min_quality, options.keep)

    def detector_for(self, options: CommonOptions) -> FaceFinder | None:
        """What finds the faces of a request; None if its images are aligned crops.

        Raises:
            RequestError: the request wants a detector, and there is none.
        """
        if options.aligned is False and self.scorer.detector is None:
            raise RequestError(
                "invalid", "aligned: this service has no detector, so images must be aligned crops"
            )
        if options.aligned is None:
            return self.scorer.detector
        return None if options.aligned else self._photo_detector()

    async def score(self, uploads: Sequence[Upload], options: Options) -> Scores:
        """Score images; one that cannot be read has an error in its place.

        Raises:
            RequestError: the options do not fit this model or service.
            UnusableImagesError: none of the images can be read.
        """
        row_builder = self.row_builder_for(options)
        scored = await self._score_all(uploads, row_builder, options)
        _check_any_usable(scored)
        embedder = self.scorer.embedder
        return Scores(
            model=embedder.name,
            model_sha256=embedder.sha256,
            min_quality=row_builder.min_quality,
            images=[image.result for image in scored],
        )

    async def search(self, uploads: Sequence[Upload], options: SearchOptions) -> Matches:
        """Score images, and search for their faces in the gallery.

        Raises:
            RequestError: the service has no gallery, or cannot search it now; or the options do not fit this model or
                service.
            UnusableImagesError: none of the images can be read.
        """
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
            matches = iter(await in_thread(partial(gallery.match, faces, fpir=fpir, k=options.k)))
            threshold = await in_thread(gallery.threshold, fpir)
        images = [
            ImageMatches(
                **dict(image.result)
                | {"faces": [_face_match(face, next(matches)) for face in image.result.faces]}
            )
            for image in scored
        ]
        for image in images:
            for face in image.faces:
                self.metrics.searches.labels(face.decision).inc()
        embedder = self.scorer.embedder
        return Matches(
            model=embedder.name,
            model_sha256=embedder.sha256,
            min_quality=row_builder.min_quality,
            fpir=fpir,
            threshold=threshold.cosine,
            images=images,
        )

    async def verify(self, uploads: Sequence[Upload], options: VerifyOptions) -> PairVerification:
        """Compare two images.

        Raises:
            RequestError: there are not two images, or the options do not fit this model or service.
            UnusableImagesError: one of them cannot be read or has no face.
        """
        if len(uploads) != 2:
            raise RequestError("invalid", f"two images are compared, and this request has {len(uploads)}")
        with _invalid_options():
            rule = self._rule(options)
        row_builder = self.row_builder_for(VerifyOptions(min_quality=rule.min_quality))
        scored = await self._score_all(uploads, row_builder, options)
        images = [image.result for image in scored]
        faces = [
            replace(image.faces[0], row=replace(image.faces[0].row, path=path))
            for path, image in zip(("the first image", "the second image"), scored, strict=True)
        ]
        result = rule.verify(*faces)
        if result.decision is None or result.similarity is None:
            problems = [
                f"{face.row.path}: {image.error or in_words([NO_FACE])}"
                for face, image in zip(faces, images, strict=True)
                if not image.faces
            ]
            raise UnusableImagesError("; ".join(problems), images)
        self.metrics.verifications.labels(result.decision).inc()
        return PairVerification(
            model=self.scorer.embedder.name,
            model_sha256=rule.model_sha256,
            decision=result.decision,
            similarity=result.similarity,
            reason=result.reason,
            note=result.note,
            fmr=rule.fmr,
            threshold=rule.threshold,
            fnmr=rule.fnmr,
            fnmr_ci95=result.fnmr_ci95,
            min_quality=rule.min_quality,
            images=images,
        )

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
        row_builder = self.scorer.row_builder(min_quality=min_quality, keep=keep)
        if row_builder.min_quality is not None and not self.has_quality:
            raise ModelError(
                f"{self.scorer.embedder.name} has no quality, so it cannot accept faces by a threshold"
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
            decisions = [face.accepted for face in image.result.faces]
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
            faces=[_face(entry, embedding=embedding) for entry in scored if entry.row.face is not None],
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
def _invalid_options() -> Iterator[None]:
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


def _face_match(face: FaceResult, match: Match) -> FaceMatch:
    candidates = [Candidate(person=person, cosine=cosine) for person, cosine in match.candidates]
    return FaceMatch(**dict(face), decision=match.decision.value, candidates=candidates)


def _face(scored: ScoredFace, *, embedding: bool) -> FaceResult:
    row = scored.row
    points = row.points
    return FaceResult(
        box=row.box,
        points=None if points is None else [points[at : at + 2] for at in range(0, len(points), 2)],
        det_score=row.det_score,
        percentile=row.percentile,
        quality=row.quality,
        uncertainty=row.uncertainty,
        accepted=row.accepted,
        reasons=list(row.reasons),
        # Only the digits that float32 has.
        embedding=[float(str(value)) for value in scored.embedding]
        if embedding and scored.embedding is not None
        else None,
    )
