"""Videos with their tracks drawn in: boxes, numbers, people and percentiles."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.io.files import atomic_write, os_errors
from facerts.scoring.annotate import TRACK, annotate
from facerts.scoring.row import Row
from facerts.scoring.video_tracks import TrackedFrame
from facerts.video.frames import Frame, FrameSource
from facerts.video.video_file import import_av

# All frames of a video are drawn, not only those that were looked at.
ALL_FRAMES = 1000.0
# Boxes are drawn between two frames that were looked at if these are at most so far apart, in seconds.
MAX_GAP = 1.0
# H.264 where PyAV was built with it, without frames that wait in memory for later ones; otherwise what every build has.
CODECS = (("libx264", {"crf": "23", "preset": "veryfast", "tune": "zerolatency"}), ("mpeg4", {"qscale": "4"}))
TICKS = 10_000


@dataclass(frozen=True)
class DrawnTrack:
    """How a track is drawn: green if it is ``good``, as it has a face that is not poor, otherwise orange."""

    number: int
    good: bool
    person: str | None = None

    @property
    def title(self) -> str:
        """What stands above its percentile."""
        return f"{TRACK}{self.number}" if self.person is None else f"{self.number} {self.person}"


class BoxLog:
    """The boxes that were seen in a video, by time."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._boxes: list[dict[int, tuple[NDArray[np.float32], float | None]]] = []

    def add(self, frame: TrackedFrame) -> None:
        """Note the boxes of the next frame."""
        self._times.append(frame.time)
        self._boxes.append(
            {
                part: (np.array(face.row.box, np.float32), face.row.percentile)
                for part, face in zip(frame.parts, frame.faces, strict=True)
                if part is not None
            }
        )

    def at(self, time: float) -> Iterator[tuple[int, list[float], float | None]]:
        """The part, box and percentile of each face at a time, between those that were seen."""
        after = bisect_right(self._times, time)
        if after == 0:
            return
        before = self._boxes[after - 1]
        last = after == len(self._times)
        gap = 0.0 if last else self._times[after] - self._times[after - 1]
        following = {} if last or gap > MAX_GAP else self._boxes[after]
        if time - self._times[after - 1] > MAX_GAP:
            return
        share = (time - self._times[after - 1]) / gap if gap else 0.0
        for part, (box, percentile) in before.items():
            next_box = following.get(part, (box, None))[0]
            yield part, ((1 - share) * box + share * next_box).tolist(), percentile


def draw_tracks(
    pixels: NDArray[np.uint8],
    boxes: Sequence[tuple[int, list[float], float | None]],
    tracks: Mapping[int, DrawnTrack],
) -> NDArray[np.uint8]:
    """An image ``(H, W, 3) uint8`` RGB with the boxes of tracks drawn in: part, box and percentile of each face.

    Parts that are not in ``tracks`` are not drawn.
    """
    drawn = [(tracks[part], box, percentile) for part, box, percentile in boxes if part in tracks]
    rows = [
        Row("", face=number, box=box, percentile=percentile, accepted=track.good)
        for number, (track, box, percentile) in enumerate(drawn)
    ]
    return annotate(pixels, rows, titles=[track.title for track, _, _ in drawn])


def write_annotated(
    path: Path, source: FrameSource, log: BoxLog, tracks: Mapping[int, DrawnTrack], until: float
) -> None:
    """Write a video again up to a time in seconds, with its tracks, by part, drawn in; without sound."""
    frames = takewhile(lambda frame: frame.time <= until, source.frames(ALL_FRAMES))
    write_video(
        path,
        (replace(each, pixels=draw_tracks(each.pixels, [*log.at(each.time)], tracks)) for each in frames),
    )


def write_video(path: Path, frames: Iterable[Frame]) -> None:
    """Write frames, all as large as the first, as an .mp4 file; they keep their times."""
    av = import_av()
    codec, options = next(each for each in CODECS if each[0] in av.codecs_available)
    with atomic_write(path) as file, os_errors(), av.open(file, "w", format="mp4") as container:
        stream, last = container.add_stream(codec, rate=30, options=options), -1
        stream.pix_fmt = "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, TICKS)
        for frame in frames:
            pixels = even_sides(frame.pixels)
            if last < 0:
                stream.height, stream.width = pixels.shape[:2]
            encoded = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            encoded.time_base = Fraction(1, TICKS)
            last = encoded.pts = max(round(frame.time * TICKS), last + 1)
            container.mux(stream.encode(encoded))
        if last >= 0:
            # What the encoder still holds.
            container.mux(stream.encode())


def even_sides(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An image with an even height and width, as encoders need it: the last row or column is there twice."""
    height, width = pixels.shape[:2]
    return np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
