"""Frames that a program has in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import VideoError
from facerts.video.frames import Frame, FrameSampler, ReadReport


@dataclass
class FrameImages:
    """Images one after the other.

    Args:
        images: ``(H, W, 3) uint8`` arrays, of which ``fps`` make a second and every one is looked at; or pairs of a
            time in seconds and an array, of which those are looked at that a file's frames would be.
        color: order of the channels, "RGB" or "BGR".

    Attributes:
        report: how far they were read.
    """

    images: Iterable[Any]
    color: str = "RGB"
    report: ReadReport = field(default_factory=ReadReport)
    name: str = "frames"

    @property
    def live(self) -> bool:
        """Whether they come from a generator, which may have no end."""
        return not isinstance(self.images, Sized)

    @property
    def duration(self) -> float | None:
        """None: the times are those of the images."""
        return None

    def frames(self, fps: float) -> Iterator[Frame]:
        """See ``FrameSource``."""
        sampler = FrameSampler(fps)
        for number, image in enumerate(self.images):
            pair = isinstance(image, tuple) and len(image) == 2
            time, pixels = image if pair else (number / fps, image)
            self._check(number, time, pixels)
            self.report.frames, self.report.until = number + 1, float(time)
            if sampler.wants(time):
                yield Frame(float(time), self._rgb(pixels))

    def _check(self, number: int, time: Any, pixels: Any) -> None:
        if not isinstance(time, int | float | np.number) or not np.isfinite(time) or time < 0:
            raise VideoError(f"frame {number}: its time {time!r} is no number of seconds")
        if self.report.until is not None and time < self.report.until:
            raise VideoError(
                f"frame {number}: its time, {time:g} seconds, is before that of the frame before it"
            )
        if not (
            isinstance(pixels, np.ndarray)
            and pixels.dtype == np.uint8
            and pixels.ndim == 3
            and pixels.shape[2] == 3
            and pixels.size
        ):
            what = (
                f"{pixels.shape} {pixels.dtype}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
            )
            raise VideoError(f"frame {number}: must be an array (H, W, 3) uint8 {self.color}, not {what}")

    def _rgb(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.ascontiguousarray(pixels if self.color == "RGB" else pixels[..., ::-1])
