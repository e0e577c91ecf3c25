"""Frames to tracks, in bounded memory: faces are found, scored, followed, and joined over cuts and absences."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from facerts.detection import AutoDetector, FaceFinder
from facerts.errors import Error, ModelError
from facerts.onnx.contract import Calibration
from facerts.scoring.crop_store import CropStore
from facerts.scoring.parts import Recognizer
from facerts.scoring.pipeline import score_images
from facerts.scoring.prepare import LazyImage
from facerts.scoring.row_builder import RowBuilder, ScoredFace
from facerts.scoring.track import Track
from facerts.scoring.track_builder import TrackBuilder, joined_best
from facerts.video.frames import Frame, FrameSource
from facerts.video.tracker import SeenBox, Tracker

# Minimum crops per batch, and frames after which a batch ends in any case. It bounds the frames in memory: twice as
# many wait for the detector, for each batch that is scored at the same time.
BATCH_SIZE = 4
# Seconds without a face until the track of a source without an end is given out.
LIVE_JOIN_SECONDS = 60.0


@dataclass(frozen=True)
class TrackOptions:
    """How a video is looked at.

    Attributes:
        fps: frames per second that are looked at.
        best: maximum number of best shots of a track.
        min_faces: leave out tracks with fewer faces, which are mostly errors of the detector.
        join_cosine: mean cosine similarity of faces from which two tracks are joined; None joins none.
        join_seconds: longest absence over which tracks are joined; None for any.
        max_faces: maximum number of faces that are scored in a frame, largest first; None for all.
    """

    fps: float = 5.0
    best: int = 3
    min_faces: int = 2
    join_cosine: float | None = None
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


@dataclass
class TrackingState:
    """Everything that the rest of a video's tracks depend on, besides its frames and the crops in a store.

    Attributes:
        time: of the last frame that was looked at; None before the first.
        frames: number of frames that were looked at.
        faces: number of faces in them.
        failed: number of frames that could not be scored.
        followed: the tracks on screen, by number.
        ended: those that were, joined.
        given: number of tracks that were given out.
        left_out: number of tracks with too few faces.
        crops: number of crops in the store.
    """

    tracker: Tracker = field(default_factory=Tracker)
    time: float | None = None
    frames: int = 0
    faces: int = 0
    failed: int = 0
    followed: dict[int, TrackBuilder] = field(default_factory=dict)
    ended: list[TrackBuilder] = field(default_factory=list)
    given: int = 0
    left_out: int = 0
    crops: int = 0


@dataclass(frozen=True)
class TrackedFrame:
    """A frame that was looked at.

    Attributes:
        faces: its faces.
        parts: for each the number of the unbroken track that it belongs to; None for one that belongs to none.
        tracks: the tracks that have ended for good.
    """

    time: float
    faces: list[ScoredFace]
    parts: list[int | None]
    tracks: list[Track]


class VideoTracks:
    """Follows the faces of one video.

    Args:
        row_builder: scores faces; those that it rejects are poor.
        recognizer: of the embeddings.
        detector: finds them.
        source: the frames.
        store: keeps crops; closed by the caller.
        state: what an earlier run had come to; None to begin.
        min_face_size: leave out faces whose box has a side below this number of pixels.
        workers: threads that find faces; None for one per core.
        parallel_batches: how many batches are scored at the same time.

    Attributes:
        state: what this run has come to after the last frame.
    """

    def __init__(
        self,
        row_builder: RowBuilder,
        recognizer: Recognizer,
        detector: FaceFinder,
        source: FrameSource,
        options: TrackOptions,
        store: CropStore,
        state: TrackingState | None = None,
        *,
        min_face_size: float = 0,
        workers: int | None = None,
        parallel_batches: int = 1,
    ) -> None:
        self.state = state or TrackingState(Tracker(unlike_cosine(recognizer.description.calibration)))
        self._row_builder = row_builder
        self._recognizer = recognizer
        self._detector = detector
        self._source = source
        self._options = options
        self._store = store
        self._min_face_size = min_face_size
        self._workers = workers
        self._parallel_batches = parallel_batches

    def frames(self) -> Iterator[TrackedFrame]:
        """The frames that are looked at, after that of the state; ``finish`` gives the remaining tracks.

        Raises:
            VideoError: the video cannot be opened, or goes beyond a limit.
            MissingModelError: the detector is not on this machine and cannot be downloaded.
        """
        times: deque[float] = deque()
        frames = self._source.frames(self._options.fps, self.state.time)

        def image(frame: Frame) -> LazyImage:
            times.append(frame.time)
            return LazyImage(self._source.name, partial(_pixels, frame), nbytes=frame.pixels.nbytes)

        live = self._source.live
        scored = score_images(
            self._row_builder,
            # Without a variable that would keep a frame while the next one is decoded.
            map(image, frames),
            detector=self._detector,
            max_faces=self._options.max_faces,
            min_face_size=self._min_face_size,
            batch_size=1 if live else BATCH_SIZE,
            block_size=1 if live else BATCH_SIZE,
            workers=self._workers,
            parallel_batches=1 if live else self._parallel_batches,
        )
        with closing(scored):  # type: ignore[type-var]
            for faces in scored:
                yield self._step(times.popleft(), faces)

    def finish(self) -> Iterator[Track]:
        """The remaining tracks, by their begin."""
        for number in list(self.state.followed):
            self._end(number)
        ended, self.state.ended = self.state.ended, []
        for builder in sorted(ended, key=lambda each: (each.start, each.parts)):
            yield from self._given(builder)

    def _step(self, time: float, faces: list[ScoredFace]) -> TrackedFrame:
        state = self.state
        found = [face for face in faces if face.embedding is not None]
        state.failed += any(face.row.error is not None for face in faces)
        parts, ended = state.tracker.update(time, [_seen(face) for face in found])
        for number in ended:
            self._end(number)
        for part, face in zip(parts, found, strict=True):
            if part is not None:
                builder = state.followed.setdefault(part, TrackBuilder([part], [(time, time)]))
                builder.add(time, face, self._options.best)
        state.time = time
        state.frames += 1
        state.faces += len(found)
        return TrackedFrame(time, found, parts, list(self._gone(time)))

    def _end(self, number: int) -> None:
        """Put away a track that has ended, joined with those of the same person."""
        state, options = self.state, self._options
        builder = state.followed.pop(number)
        builder.put_away(self._store)
        state.crops = len(self._store)
        near = [
            track
            for track in state.ended
            if options.join_seconds is None or builder.start - track.end <= options.join_seconds
        ]
        known = None if options.join_cosine is None else joined_best(near, builder, options.join_cosine)
        if known is None:
            state.ended.append(builder)
        else:
            known.join(builder, options.best)

    def _gone(self, time: float) -> Iterator[Track]:
        """The ended tracks that nothing can be joined to any more."""
        longest = self._options.join_seconds
        if longest is None:
            return
        # Those that are still on screen may continue one that ended before they began, as may the next.
        begins = [*(builder.start for builder in self.state.followed.values()), time]
        gone: list[TrackBuilder] = []
        kept: list[TrackBuilder] = []
        for builder in self.state.ended:
            continued = any(builder.end < begin <= builder.end + longest for begin in begins)
            (kept if continued else gone).append(builder)
        self.state.ended = kept
        for builder in gone:
            yield from self._given(builder)

    def _given(self, builder: TrackBuilder) -> Iterator[Track]:
        if builder.faces < self._options.min_faces:
            self.state.left_out += 1
            return
        self.state.given += 1
        yield builder.as_track(self._source.name, self.state.given, self._store, self._recognizer.sha256)
        for shot in builder.shots:
            self._store.discard(shot.stored)


def video_detector(detector: FaceFinder | None) -> FaceFinder:
    """What finds the faces in frames, which are never aligned crops.

    Raises:
        ModelError: there is no detector.
        MissingModelError: it is not on this machine and cannot be downloaded.
    """
    if detector is None:
        raise ModelError(
            "faces in videos have to be found; load the model with a detector (--detector auto, not none)"
        )
    return detector.detector if isinstance(detector, AutoDetector) else detector


def join_cosine(calibration: Calibration | None) -> float | None:
    """The model's match threshold at its lowest false match rate; None if it has none for single crops.

    Joining compares each track with all others, so errors must be rare.
    """
    return _match_cosine(calibration, lambda rates: min(rates))


def unlike_cosine(calibration: Calibration | None) -> float | None:
    """The cosine below which two faces are not of one track; None if the model has no match thresholds.

    It lies as far below the model's most permissive match threshold as its strictest lies above it.
    """
    lowest, highest = join_cosine(calibration), _match_cosine(calibration, lambda rates: max(rates))
    return None if lowest is None or highest is None else max(0.0, 2 * highest - lowest)


def _match_cosine(calibration: Calibration | None, choose: Callable[[list[float]], float]) -> float | None:
    matching = None if calibration is None else calibration.matching
    if matching is None or matching.flip or not matching.thresholds:
        return None
    by_rate = {float(rate): threshold.similarity for rate, threshold in matching.thresholds.items()}
    return by_rate[choose(list(by_rate))]


def _pixels(frame: Frame) -> NDArray[np.uint8]:
    return frame.pixels


def _seen(face: ScoredFace) -> SeenBox:
    row = face.row
    assert row.box is not None
    return SeenBox(np.array(row.box), row.det_score or 0.0, None if row.rejected else face.embedding)
