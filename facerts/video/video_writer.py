"""Frames to a video file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import Error
from facerts.io.files import atomic_write, os_errors
from facerts.video.frames import Frame
from facerts.video.video_file import import_av

# H.264 where PyAV was built with it, without frames that wait in memory for later ones; otherwise what every build has.
CODECS = (("libx264", {"crf": "23", "preset": "veryfast", "tune": "zerolatency"}), ("mpeg4", {"qscale": "4"}))
TICKS = 10_000
SUFFIX = ".mp4"


class VideoWriter:
    """A video that is being written; frames keep their times."""

    def __init__(self, container: Any, av: Any) -> None:
        self._container = container
        self._av = av
        self._stream: Any = None
        self._last = -1

    def put(self, frame: Frame) -> None:
        """Write a frame, which is as large as the first."""
        pixels = even_sides(frame.pixels)
        if self._stream is None:
            self._stream = self._begin(pixels.shape[0], pixels.shape[1])
        encoded = self._av.VideoFrame.from_ndarray(pixels, format="rgb24")
        encoded.time_base = Fraction(1, TICKS)
        self._last = encoded.pts = max(round(frame.time * TICKS), self._last + 1)
        for packet in self._stream.encode(encoded):
            self._container.mux(packet)

    def finish(self) -> None:
        """Write what the encoder still holds."""
        if self._stream is not None:
            for packet in self._stream.encode():
                self._container.mux(packet)

    def _begin(self, height: int, width: int) -> Any:
        codec, options = next(each for each in CODECS if each[0] in self._av.codecs_available)
        stream = self._container.add_stream(codec, rate=30, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, TICKS)
        return stream


@contextmanager
def write_video(path: Path) -> Iterator[VideoWriter]:
    """Write an .mp4 file, which appears when the block ends without an error."""
    if path.suffix != SUFFIX:
        raise Error(f"{path}: videos are written as {SUFFIX}; choose a file with that suffix")
    av = import_av()
    with atomic_write(path) as file, os_errors(), av.open(file, "w", format="mp4") as container:
        writer = VideoWriter(container, av)
        yield writer
        writer.finish()


def even_sides(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An image with an even height and width, as encoders need it: the last row or column is there twice."""
    height, width = pixels.shape[:2]
    return (
        np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        if height % 2 or width % 2
        else pixels
    )
