"""Frames to tracks, in bounded memory: faces are found, scored, followed, and joined over cuts and absences."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np

from facerts.detection import Detector, FaceFinder, PhotoSearch
from facerts.errors import Error, ModelError
from facerts.scoring.face import Face
from facerts.scoring.parts import Recognizer
from facerts.scoring.pipeline import score_images
from facerts.scoring.prepare import LazyImage
from facerts.scoring.row_builder import RowBuilder
from facerts.scoring.track import Track, TrackBuilder, joined_best
from facerts.video.frames import Frame, FrameSource
from facerts.video.tracker import SeenBox, Tracker

# Minimum crops per batch, and frames after which a batch ends in any case. It bounds the frames in memory: twice as
# many wait for the detector, for each batch that is scored at the same time.
BATCH_SIZE = 4
# Seconds without a face until the track of a source without an end is given out.
LIVE_JOIN_SECONDS = 60.0


@dataclass(frozen=True)
class TrackOptions:
    """How a video is looked at, see ``Scorer.video``; ``max_faces`` is the maximum that are scored in a frame."""

    fps: float = 5.0
    best: int = 3
    min_faces: int = 2
    join_seconds: float | None = None
    max_faces: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.fps <= 1000:
            raise Error(f"fps must be above 0 and at most 1000 frames per second, not {self.fps:g}")
        for name in ("best", "min_faces"):
            if getattr(self, name) < 1:
                raise Error(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.join_seconds is not None and not self.join_seconds >= 0:
            raise Error(f"join_seconds must be 0 or more seconds, not {self.join_seconds:g}")


@dataclass(frozen=True)
class TrackedFrame:
    """A frame that was looked at.

    Attributes:
        parts: for each the number of the unbroken track that it belongs to; None for one that belongs to none.
        tracks: the tracks that have ended for good.
    """

    time: float
    faces: list[Face]
    parts: list[int | None]
    tracks: list[Track]


class VideoTracks:
    """Follows the faces of one video.

    Args:
        row_builder: scores faces; those that it rejects are poor.
        min_face_size, workers, parallel_batches: see ``score_images``.

    Attributes:
        time: of the last frame that was looked at; None before the first.
        frame_count, face_count: number of frames that were looked at, and of the faces in them.
        followed: the tracks on screen, by number.
        ended: those that were, joined.
        given, left_out: number of tracks that were given out, and of those with too few faces.
    """

    def __init__(
        self,
        row_builder: RowBuilder,
        recognizer: Recognizer,
        detector: FaceFinder,
        source: FrameSource,
        options: TrackOptions,
        *,
        min_face_size: float = 0,
        workers: int | None = None,
        parallel_batches: int = 1,
    ) -> None:
        self._recognizer = recognizer
        self._source = source
        self._options = options
        batch_size = 1 if source.live else BATCH_SIZE
        self._score = partial(
            score_images,
            row_builder,
            detector=detector,
            max_faces=options.max_faces,
            min_face_size=min_face_size,
            batch_size=batch_size,
            block_size=batch_size,
            workers=workers,
            parallel_batches=1 if source.live else parallel_batches,
        )
        cosines = [cosine for _, cosine in recognizer.match_thresholds()]
        # Joining compares each track with all others, so errors must be rare.
        self._join_cosine = cosines[0] if cosines and options.join_seconds != 0 else None
        live = options.join_seconds is None and source.live
        self._join_seconds = LIVE_JOIN_SECONDS if live else options.join_seconds
        # Two faces are not of one track if their cosine lies as far below the most permissive threshold as the
        # strictest lies above it.
        self._tracker = Tracker(max(0.0, 2 * cosines[-1] - cosines[0]) if cosines else None)
        self.time: float | None = None
        self.frame_count = self.face_count = 0
        self.followed: dict[int, TrackBuilder] = {}
        self.ended: list[TrackBuilder] = []
        self.given = self.left_out = 0

    def frames(self) -> Iterator[TrackedFrame]:
        """The frames that are looked at; ``finish`` gives the remaining tracks."""
        times: deque[float] = deque()

        def image(frame: Frame) -> LazyImage:
            times.append(frame.time)
            return LazyImage(self._source.name, lambda: frame.pixels, nbytes=frame.pixels.nbytes)

        # Without a variable that would keep a frame while the next one is decoded.
        with closing(self._score(map(image, self._source.frames(self._options.fps)))) as scored:  # type: ignore[type-var]
            for faces in scored:
                yield self._step(times.popleft(), faces)

    def finish(self) -> Iterator[Track]:
        """The remaining tracks, by their begin."""
        for number in list(self.followed):
            self._end(number)
        ended, self.ended = self.ended, []
        yield from self._given(sorted(ended, key=lambda each: (each.start, sorted(each.spans))))

    def _step(self, time: float, faces: list[Face]) -> TrackedFrame:
        found = [face for face in faces if face.vector is not None]
        parts, ended = self._tracker.update(time, [_seen(face) for face in found])
        for number in ended:
            self._end(number)
        for part, face in zip(parts, found, strict=True):
            if part is not None:
                builder = self.followed.setdefault(part, TrackBuilder())
                builder.add(part, time, face, self._options.best)
        self.time = time
        self.frame_count += 1
        self.face_count += len(found)
        return TrackedFrame(time, found, parts, list(self._given(self._gone(time))))

    def _end(self, number: int) -> None:
        """Put away a track that has ended, joined with those of the same person."""
        builder, longest = self.followed.pop(number), self._join_seconds
        builder.shots = [shot.compressed() for shot in builder.shots]
        near = [each for each in self.ended if longest is None or builder.start - each.end <= longest]
        known = None if self._join_cosine is None else joined_best(near, builder, self._join_cosine)
        if known is None:
            self.ended.append(builder)
        else:
            known.join(builder, self._options.best)

    def _gone(self, time: float) -> list[TrackBuilder]:
        """Take out the ended tracks that nothing can be joined to any more."""
        longest = self._join_seconds
        if longest is None:
            return []
        # Those that are still on screen may continue one that ended before they began, as may the next.
        begins = [*(builder.start for builder in self.followed.values()), time]
        gone = [
            builder
            for builder in self.ended
            if not any(builder.end < begin <= builder.end + longest for begin in begins)
        ]
        self.ended = [builder for builder in self.ended if builder not in gone]
        return gone

    def _given(self, builders: list[TrackBuilder]) -> Iterator[Track]:
        for builder in builders:
            if builder.faces < self._options.min_faces:
                self.left_out += 1
            else:
                self.given += 1
                yield builder.as_track(self._source.name, self.given, self._recognizer.sha256)


def video_detector(detector: FaceFinder | None) -> FaceFinder:
    """What finds the faces in frames, which are never aligned crops."""
    if detector is None:
        raise ModelError("faces in videos have to be found; the detector must not be none")
    found = detector.detector if isinstance(detector, Detector) else detector
    return found.of_frames() if isinstance(found, PhotoSearch) else found


def _seen(face: Face) -> SeenBox:
    row = face.row
    assert row.box is not None
    return SeenBox(np.array(row.box), row.det_score or 0.0, None if row.rejected else face.vector)
