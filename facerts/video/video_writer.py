"""Frames to a video file."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.io.files import atomic_write, os_errors
from facerts.video.frames import Frame
from facerts.video.video_file import import_av

# H.264 where PyAV was built with it, without frames that wait in memory for later ones; otherwise what every build has.
CODECS = (("libx264", {"crf": "23", "preset": "veryfast", "tune": "zerolatency"}), ("mpeg4", {"qscale": "4"}))
TICKS = 10_000


def write_video(path: Path, frames: Iterable[Frame]) -> None:
    """Write frames, which keep their times, as an .mp4 file.

    Args:
        frames: all as large as the first.
    """
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
    return (
        np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        if height % 2 or width % 2
        else pixels
    )
