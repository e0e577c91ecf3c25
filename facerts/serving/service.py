"""Uploads to scores: images are prepared in threads, and their crops go through one batcher; clips have a thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from facerts.detection import Detector, FaceFinder
from facerts.errors import Error, ModelError, VideoError
from facerts.galleries import Gallery
from facerts.galleries.enroll import PROBE_KEEP, default_threshold
from facerts.images import CROP_SIZE, decode
from facerts.scoring import Face, LazyImage, MatchRule, Row, RowBuilder, Scorer
from facerts.scoring.parts import FaceModel
from facerts.scoring.prepare import prepare
from facerts.scoring.video_tracks import TrackOptions, video_detector
from facerts.serving import schemas
from facerts.serving.batching import Batcher
from facerts.serving.error_responses import LOG, RequestError
from facerts.serving.prometheus import Metrics
from facerts.serving.settings import Settings
from facerts.serving.uploads import Upload
from facerts.video import VideoLimits
from facerts.video.frames import MAX_FRAME_PIXELS
from facerts.video.open_frames import IN_MEMORY
from facerts.video.tracker import import_assignment
from facerts.video.video_file import VideoFile, import_av

Result = TypeVar("Result")
# What the response says of an image, and its faces: one without a face if none was found.
ScoredImage: TypeAlias = tuple[schemas.ImageResult, list[Face]]

# Images in memory for each crop of a batch: enough to fill the next batches, and no more.
AHEAD = 4
# Clips that are looked at at the same time; others wait. Each takes a core, and images are not to wait for them.
CLIPS = 1
# Frames per second of a clip that are decoded at most.
MAX_FRAME_RATE = 120
# What errors call the images that are compared, and any other; removed again where they stand beside it in a response.
PAIR = "the first image", "the second image"
IMAGE = "the image"


@contextmanager
def gallery_errors() -> Iterator[None]:
    """Turn what goes wrong with a gallery in a database into an answer that says nothing of where it is."""
    try:
        yield
    except Error as error:
        LOG.error("%s", error)
        raise RequestError("busy", "the gallery cannot be searched now; the service's log says why") from error


class Service:
    """Scores the images of many requests at once; belongs to one event loop. A lazy scorer is opened now."""

    def __init__(self, scorer: Scorer, settings: Settings, metrics: Metrics) -> None:
        self.scorer = scorer
        self.settings = settings
        self.metrics = metrics
        model = scorer.model()
        # What a request runs that asks for no embeddings.
        self._scoring_model = scorer.model(embed=False) if len(model.models) > 1 else model
        # The first forward pass is slow and may fail; better now than with the first request.
        black = np.zeros((1, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)
        outputs = model(black)
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
        if settings.video:
            import_av()
            import_assignment()
            video_detector(scorer.detector)
        self.working = 0
        self._slots = asyncio.Semaphore(AHEAD * model.batch_size * model.parallel_batches)
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="images")
        self._clip_threads = ThreadPoolExecutor(CLIPS, thread_name_prefix="videos")
        self._batcher = Batcher(
            model,
            batch_size=model.batch_size,
            concurrency=model.parallel_batches,
            on_batch=metrics.batch.observe,
        )

    def _open_gallery(self, place: str | Path, embedding: NDArray[np.float32]) -> Gallery:
        gallery = Gallery(place)
        gallery.check_model(self.scorer)
        # Computed now rather than with the first request; and the gallery may not be one to search in.
        face = Face(Row("", model_sha256=self.scorer.recognizer.sha256), None, embedding)
        gallery.match([face], fpir=self.settings.fpir, recognizer=self.scorer.recognizer)
        return gallery

    @property
    def queued(self) -> int:
        """Number of crops that wait for the network."""
        return self._batcher.waiting

    def check_capacity(self) -> None:
        """Refuse a request while as many as allowed are being worked on."""
        if self.working >= self.settings.queue:
            raise RequestError("busy", f"{self.settings.queue} requests are already being worked on; try again later")

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
        self._clip_threads.shutdown()

    def row_builder_for(self, options: schemas.CommonOptions, default: RowBuilder | None = None) -> RowBuilder:
        """What accepts or rejects a request's faces; ``default``, or that of /v1/score, where it sets no threshold."""
        if options.keep is None and options.min_quality is None:
            return default or self.row_builder
        with invalid_options():
            return self._row_builder(options.min_quality, options.keep)

    def detector_for(self, options: schemas.CommonOptions) -> FaceFinder | None:
        """What finds the faces of a request; None if its images are aligned crops."""
        if options.aligned is False and self.scorer.detector is None:
            raise RequestError("invalid", "aligned: this service has no detector, so images must be aligned crops")
        if options.aligned is None:
            return self.scorer.detector
        return None if options.aligned else self._photo_detector()

    async def score(self, uploads: Sequence[Upload], options: schemas.Options) -> schemas.Scores:
        """Score the faces in one or more images.

        An image without a face is not an error. If some of the images cannot be read, each of them has an `error` in
        its place; if none can, the response is 422 with the same list.
        """
        row_builder = self.row_builder_for(options)
        if not options.embeddings:
            row_builder = replace(row_builder, model=self._scoring_model)
        images = [image for image, _ in await self._score_usable(uploads, row_builder, options)]
        return schemas.Scores.of(self.header(row_builder), images=images)

    async def search(self, uploads: Sequence[Upload], options: schemas.SearchOptions) -> schemas.Matches:
        """Score the faces in one or more images, and search for each in the gallery, at a stated error rate.

        Images without a face, or that cannot be read, are answered as in /v1/score. A service without a gallery
        answers 422.
        """
        if self.gallery is None:
            raise RequestError(
                "invalid", "this service has no gallery to search in; start it with --gallery people.npz"
            )
        row_builder = self.row_builder_for(options, self.search_row_builder)
        images = await self._score_usable(uploads, row_builder, options)
        faces = [face for image, faces in images for face in faces[: len(image.faces)]]
        matches, search = await self._in_thread(self.match, faces, options)
        for match in matches:
            self.metrics.searches.labels(match["decision"]).inc()
        found = iter(matches)
        return schemas.Matches.of(
            self.header(row_builder),
            **search,
            images=[
                schemas.ImageMatches.of(
                    image, faces=[schemas.FaceMatch.of(face, **next(found)) for face in image.faces]
                )
                for image, _ in images
            ],
        )

    def match(
        self, faces: Sequence[Face], options: schemas.GalleryOptions
    ) -> tuple[list[schemas.Found], Mapping[str, Any]]:
        """What responses say of each face by the gallery, and of the search; called in a thread."""
        if self.gallery is None:
            nobody: schemas.Found = {"decision": None, "candidates": []}
            return [nobody] * len(faces), {"fpir": None, "threshold": None}
        fpir = options.fpir or self.settings.fpir
        with gallery_errors():
            matches = self.gallery.match(faces, fpir=fpir, k=options.k, recognizer=self.scorer.recognizer)
            threshold = self.gallery.threshold(fpir, self.scorer.recognizer).cosine
        said: list[schemas.Found] = [
            {
                "decision": match.decision.value,
                "candidates": [schemas.Candidate(person=person, cosine=cosine) for person, cosine in match.candidates],
            }
            for match in matches
        ]
        return said, {"fpir": fpir, "threshold": threshold}

    async def verify(self, uploads: Sequence[Upload], options: schemas.VerifyOptions) -> schemas.PairVerification:
        """Decide whether two images show the same person, at a calibrated error rate.

        Of an image with several faces the largest is compared. If an image cannot be read or has no face, the response
        is 422 with both images.
        """
        if len(uploads) != 2:
            raise RequestError("invalid", f"two images are compared, and this request has {len(uploads)}")
        with invalid_options():
            rule = self._rule(options)
        row_builder = self.row_builder_for(schemas.VerifyOptions(min_quality=rule.min_quality))
        (one, (first, *_)), (other, (second, *_)) = await self._score_all(uploads, row_builder, options, names=PAIR)
        result = rule.verify(first, second)
        if result.error is not None:
            raise RequestError("unusable_images", result.error, [one, other])
        self.metrics.verifications.labels(result.decision).inc()
        return schemas.PairVerification.of(result, model=self.scorer.recognizer.name, images=[one, other])

    async def video(self, uploads: Sequence[Upload], options: schemas.VideoOptions) -> schemas.VideoResult:
        """Follow the faces in one clip: each person's times, best shots and quality, and who it is.

        A clip without a face is not an error. One that is cut off or damaged has an `error`, and the tracks until
        there; if nothing of it can be read, or it is beyond a limit, the response is 422.
        """
        (upload,) = uploads
        if options.fpir is not None and self.gallery is None:
            raise RequestError("invalid", "this service has no gallery to search in, so fpir means nothing")
        with invalid_options():
            row_builder = self.scorer.track_row_builder(min_quality=options.min_quality, keep=options.keep)
        abandoned = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._clip_threads, self._track, upload, options, row_builder, abandoned
            )
        finally:
            # The thread of a request that nobody waits for any more stops at the next frame.
            abandoned.set()

    def _track(
        self,
        upload: Upload,
        options: schemas.VideoOptions,
        row_builder: RowBuilder,
        abandoned: threading.Event,
    ) -> schemas.VideoResult:
        settings = self.settings
        limits = VideoLimits(
            max_pixels=min(settings.max_pixels, MAX_FRAME_PIXELS),
            max_seconds=settings.max_seconds,
            max_frames=round(MAX_FRAME_RATE * settings.max_seconds),
        )
        source = VideoFile(IN_MEMORY, upload.data, limits)
        looked_at = TrackOptions(options.fps, options.best, options.min_faces, max_faces=settings.max_faces)
        try:
            seconds = source.duration
            run = self.scorer.track(source, looked_at, row_builder, workers=1)
            for _ in run.frames():
                if abandoned.is_set():
                    raise RequestError("timeout", "nobody waits for this response any more")
            tracks = list(run.finish())
        except VideoError as error:
            raise RequestError("unusable_video", str(error).removeprefix(f"{IN_MEMORY}: ")) from error
        matches, search = self.match([track.as_face() for track in tracks], options)
        return schemas.VideoResult.of(
            self.header(row_builder),
            **search,
            name=upload.name,
            seconds=seconds,
            read_until=source.report.until,
            frames=run.frame_count,
            left_out=run.left_out,
            tracks=[
                schemas.TrackResult.of(
                    track,
                    track=track.number,
                    best=[
                        schemas.ShotResult.of(shot.row, time=shot.time, crop=shot.crop if options.crops else None)
                        for shot in track.best
                    ],
                    template=track.template if options.embeddings else None,
                    **match,
                )
                for track, match in zip(tracks, matches, strict=True)
            ],
            error=source.report.problem,
        )

    def header(self, row_builder: RowBuilder) -> schemas.Answer:
        """What every answer says of the model."""
        model = row_builder.model
        return schemas.Answer(model=model.name, model_sha256=model.sha256, min_quality=row_builder.min_quality)

    def _rule(self, options: schemas.VerifyOptions) -> MatchRule:
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
            return self._rule(schemas.VerifyOptions())
        except ModelError:
            if self.settings.fmr is not None:
                raise
            return None

    def _photo_detector(self) -> FaceFinder | None:
        """What finds the faces in an image that is certainly a photo."""
        detector = self.scorer.detector
        return detector.detector if isinstance(detector, Detector) else detector

    def _row_builder(self, min_quality: float | None, keep: float | None) -> RowBuilder:
        row_builder = self.scorer.row_builder(self.scorer.min_quality(min_quality, keep))
        if row_builder.min_quality is not None and not self.has_quality:
            raise ModelError(f"{self.scorer.model().name} has no quality, so it cannot accept faces by a threshold")
        return row_builder

    async def _score_usable(
        self, uploads: Sequence[Upload], row_builder: RowBuilder, options: schemas.Options
    ) -> list[ScoredImage]:
        """The images scored, of which at least one could be read."""
        scored = await self._score_all(uploads, row_builder, options)
        images = [image for image, _ in scored]
        if all(image.error is not None for image in images):
            message = images[0].error or ""
            if len(images) > 1:
                message = f"none of the {len(images)} images could be scored; the first: {message}"
            raise RequestError("unusable_images", message, images)
        return scored

    async def _score_all(
        self,
        uploads: Sequence[Upload],
        row_builder: RowBuilder,
        options: schemas.Options | schemas.VerifyOptions,
        names: Iterable[str] = repeat(IMAGE),
    ) -> list[ScoredImage]:
        prepare_one = partial(
            prepare,
            detector=self.detector_for(options),
            max_faces=1 if options.largest else self.settings.max_faces,
            min_face_size=self.scorer.min_face_size,
        )

        model = row_builder.model
        assert isinstance(model, FaceModel)

        async def score_one(upload: Upload, where: str) -> ScoredImage:
            load = partial(decode, upload.data, where=where, max_pixels=self.settings.max_pixels, pillow=False)
            async with self._slots:
                image = await self._in_thread(prepare_one, LazyImage(where, load))
                crops = np.stack(image.crops) if image.crops else None
                outputs = None if crops is None else await self._batcher(crops, model)
            faces = row_builder.rows(image, outputs)
            height, width = image.size or (None, None)
            result = schemas.ImageResult(
                name=upload.name,
                width=width,
                height=height,
                found=image.found,
                error=None if image.error is None else image.error.removeprefix(f"{where}: "),
                faces=[
                    schemas.FaceResult.of(face.row, embedding=face.vector if options.embeddings else None)
                    for face in faces
                    if face.row.face is not None
                ],
            )
            return result, faces

        tasks = [asyncio.ensure_future(score_one(upload, where)) for upload, where in zip(uploads, names, strict=False)]
        try:
            scored = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        for image, _ in scored:
            self.metrics.count_image([face.accepted for face in image.faces], failed=image.error is not None)
        return scored

    async def _in_thread(self, work: Callable[..., Result], *given: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)


@contextmanager
def invalid_options() -> Iterator[None]:
    """Turn what does not fit the model into the response to the request whose options ask for it."""
    try:
        yield
    except ModelError as error:
        raise RequestError("invalid", str(error)) from error
