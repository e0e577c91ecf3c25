"""Clips to the tracks of their people, each in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from facerts.errors import VideoError
from facerts.scoring.track import Track
from facerts.scoring.video_tracks import TrackOptions, video_detector
from facerts.serving.error_responses import RequestError
from facerts.serving.schemas import Found, ShotResult, TrackResult, VideoOptions, VideoResult
from facerts.serving.service import Service, invalid_options
from facerts.serving.uploads import Upload
from facerts.video import VideoLimits
from facerts.video.frames import MAX_FRAME_PIXELS
from facerts.video.open_frames import IN_MEMORY
from facerts.video.tracker import import_assignment
from facerts.video.video_file import VideoFile, import_av

# Clips that are looked at at the same time; others wait. Each takes a core, and images are not to wait for them.
CLIPS = 1
# Frames per second of a clip that are decoded at most.
MAX_FRAME_RATE = 120


class VideoRequests:
    """Follows the faces of the clips of requests, with the model, gallery and limits of a service."""

    def __init__(self, service: Service) -> None:
        import_av()
        import_assignment()
        video_detector(service.scorer.detector)
        self._service = service
        self._threads = ThreadPoolExecutor(CLIPS, thread_name_prefix="videos")

    async def close(self) -> None:
        """Finish what has begun, and stop."""
        self._threads.shutdown()

    async def video(self, uploads: Sequence[Upload], options: VideoOptions) -> VideoResult:
        """Follow the faces in one clip: each person's times, best shots and quality, and who it is.

        A clip without a face is not an error. One that is cut off or damaged has an `error`, and the tracks until
        there; if nothing of it can be read, or it is beyond a limit, the response is 422.
        """
        (upload,) = uploads
        if options.fpir is not None and self._service.gallery is None:
            raise RequestError("invalid", "this service has no gallery to search in, so fpir means nothing")
        with invalid_options():
            self._service.scorer.track_row_builder(min_quality=options.min_quality, keep=options.keep)
        abandoned = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._track, upload, options, abandoned
            )
        finally:
            # The thread of a request that nobody waits for any more stops at the next frame.
            abandoned.set()

    def _track(self, upload: Upload, options: VideoOptions, abandoned: threading.Event) -> VideoResult:
        settings, scorer = self._service.settings, self._service.scorer
        limits = VideoLimits(
            max_pixels=min(settings.max_pixels, MAX_FRAME_PIXELS),
            max_seconds=settings.max_seconds,
            max_frames=round(MAX_FRAME_RATE * settings.max_seconds),
        )
        source = VideoFile(IN_MEMORY, upload.data, limits)
        looked_at = TrackOptions(options.fps, options.best, options.min_faces, max_faces=settings.max_faces)
        try:
            seconds = source.duration
            run = scorer.track(
                source, looked_at, min_quality=options.min_quality, keep=options.keep, workers=1
            )
            for _ in run.frames():
                if abandoned.is_set():
                    raise RequestError("timeout", "nobody waits for this response any more")
            tracks = list(run.finish())
        except VideoError as error:
            raise RequestError("unusable_video", str(error).removeprefix(f"{IN_MEMORY}: ")) from error
        report = source.report
        matches, search = self._service.match([track.as_face() for track in tracks], options)
        row_builder = scorer.track_row_builder(min_quality=options.min_quality, keep=options.keep)
        return VideoResult(
            **self._service.header(row_builder),
            **search,
            name=upload.name,
            seconds=seconds,
            read_until=report.until,
            frames=run.frame_count,
            left_out=run.left_out,
            tracks=[_result(track, match, options) for track, match in zip(tracks, matches, strict=True)],
            error=report.problem,
        )


def _result(track: Track, match: Found, options: VideoOptions) -> TrackResult:
    shots = [
        ShotResult.of(shot.row, time=shot.time, crop=shot.crop if options.crops else None)
        for shot in track.best
    ]
    template = track.template if options.embeddings else None
    return TrackResult.of(track, track=track.number, best=shots, template=template, **match)
