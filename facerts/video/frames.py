"""Frames of a video with their times, and which of them to look at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from facerts.errors import VideoError

# Enough for the 5.3K of action cameras.
MAX_FRAME_PIXELS = 16_000_000
# Times are counted in ticks of a stream; a frame that is this much early, in parts of a period, belongs to the next.
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Frame:
    """An image at a time.

    Attributes:
        time: seconds since the video began.
        pixels: ``(H, W, 3) uint8`` RGB, upright and with square pixels.
    """

    time: float
    pixels: NDArray[np.uint8]


@dataclass
class ReadReport:
    """How far a video was read; it changes while its frames are read.

    Attributes:
        until: time of the last frame that was decoded, in seconds; None before the first.
        frames: number of frames that were decoded, looked at or not.
        damaged: number of packets and frames that were damaged.
        reconnects: how many times a stream that had dropped was opened again.
        problem: why the video could not be read to its end; None if it was.
    """

    until: float | None = None
    frames: int = 0
    damaged: int = 0
    reconnects: int = 0
    problem: str | None = None


@dataclass(frozen=True)
class VideoLimits:
    """How much of a video is read; what goes beyond is an error.

    Attributes:
        max_pixels: maximum number of pixels of a frame, checked before it is decoded; fewer where a pixel has more
            than 12 bits.
        max_seconds: maximum duration; None for none.
        max_frames: maximum number of decoded frames; None for none.
    """

    max_pixels: int = MAX_FRAME_PIXELS
    max_seconds: float | None = None
    max_frames: int | None = None


class FrameSource(Protocol):
    """A video, a stream, a camera or images in memory, with a report of how far it was read."""

    report: ReadReport

    @property
    def name(self) -> str:
        """What errors and rows call it."""
        ...

    @property
    def live(self) -> bool:
        """Whether frames come as they are recorded, without an end that is known."""
        ...

    @property
    def duration(self) -> float | None:
        """Seconds, as the video itself says; None if it does not."""
        return None

    def frames(self, fps: float) -> Iterator[Frame]:
        """The first frame of each period of ``1 / fps`` seconds that has one, in order.

        A problem within the video ends the frames, and the report says so.
        """
        ...


def clock(seconds: float) -> str:
    """A time in a video: "0:01:05.2"."""
    tenths = round(10 * seconds)
    return f"{tenths // 36000}:{tenths // 600 % 60:02d}:{tenths // 10 % 60:02d}.{tenths % 10}"


class FrameSampler:
    """Chooses the first frame of each ``1 / fps`` seconds, so that frame rates that vary make no difference."""

    def __init__(self, fps: float) -> None:
        self._fps = fps
        self._next = 0

    def wants(self, time: float) -> bool:
        """Whether to look at the next frame, which is at this time."""
        period = math.floor(time * self._fps + TOLERANCE)
        if period < self._next:
            return False
        self._next = period + 1
        return True


@dataclass
class FrameImages(FrameSource):
    """Images that a program has in memory.

    Args:
        images: ``(H, W, 3) uint8`` arrays, of which ``fps`` make a second and every one is looked at; or pairs of a
            time in seconds and an array, of which those are looked at that a file's frames would be.
        color: order of the channels, "RGB" or "BGR".
    """

    images: Iterable[Any]
    color: str = "RGB"
    report: ReadReport = field(default_factory=ReadReport)
    name: str = "frames"

    @property
    def live(self) -> bool:
        """Whether they come from a generator, which may have no end."""
        return not isinstance(self.images, Sized)

    def frames(self, fps: float) -> Iterator[Frame]:
        """See ``FrameSource``."""
        sampler = FrameSampler(fps)
        for number, image in enumerate(self.images):
            pair = isinstance(image, tuple) and len(image) == 2
            time, pixels = image if pair else (number / fps, image)
            self._check(number, time, pixels)
            self.report.frames, self.report.until = number + 1, float(time)
            if sampler.wants(time):
                rgb = pixels if self.color == "RGB" else pixels[..., ::-1]
                yield Frame(float(time), np.ascontiguousarray(rgb))

    def _check(self, number: int, time: Any, pixels: Any) -> None:
        if not isinstance(time, int | float | np.number) or not np.isfinite(time) or time < 0:
            raise VideoError(f"frame {number}: its time {time!r} is no number of seconds")
        if self.report.until is not None and time < self.report.until:
            raise VideoError(f"frame {number}: its time, {time:g} seconds, is before that of the frame before it")
        array = isinstance(pixels, np.ndarray)
        if not (array and pixels.dtype == np.uint8 and pixels.shape[2:] == (3,) and pixels.size):
            what = f"{pixels.shape} {pixels.dtype}" if array else type(pixels).__name__
            raise VideoError(f"frame {number}: must be an array (H, W, 3) uint8 {self.color}, not {what}")
