"""What a user calls a video, to its frames."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from facerts.errors import VideoError
from facerts.video.frames import FrameImages, FrameSource, VideoLimits
from facerts.video.live_sources import CAMERA, SCHEMES, Camera, VideoStream, without_password
from facerts.video.video_file import VideoFile

VideoInput: TypeAlias = "str | Path | int | bytes | BinaryIO | Iterable[NDArray[np.uint8]] | FrameSource"

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# Bytes of a video in memory.
IN_MEMORY = "video"


def open_frames(
    video: Any, *, color: str = "RGB", limits: VideoLimits | None = None, reconnect: float = 60.0
) -> FrameSource:
    """The frames of a video; nothing is opened yet.

    Args:
        video: a path; an address (http, rtsp, rtmp, srt, udp …); the number of a camera, or ``device:0``; the bytes of
            a video, or a file that is open in binary mode; images, see ``FrameImages``.
        color: order of the channels of images: "RGB", or "BGR" for those of OpenCV.
        limits: what is read of a file or stream; None for the default.
        reconnect: seconds without a frame for which a stream or camera that has dropped is opened again and again.
    """
    limits = limits or VideoLimits()
    if isinstance(video, int) and not isinstance(video, bool):
        return Camera(video, reconnect)
    if isinstance(video, str | Path):
        return _named(video, limits, reconnect)
    if isinstance(video, bytes | bytearray | memoryview):
        return VideoFile(IN_MEMORY, bytes(video), limits)
    if hasattr(video, "read"):
        return VideoFile(IN_MEMORY, video.read(), limits)
    if hasattr(video, "frames") and hasattr(video, "report"):
        source: FrameSource = video
        return source
    if isinstance(video, Iterable):
        return FrameImages(video, color.upper())
    raise VideoError(
        f"a video must be a path, an address, the number of a camera, bytes or images, not {type(video).__name__}"
    )


def _named(video: str | Path, limits: VideoLimits, reconnect: float) -> FrameSource:
    text = str(video)
    if isinstance(video, str) and text.startswith(CAMERA):
        number = text.removeprefix(CAMERA)
        if not (number.isascii() and number.isdecimal()):
            raise VideoError(f"{text}: give the number of a camera, such as {CAMERA}0")
        return Camera(int(number), reconnect)
    if isinstance(video, str) and (address := _ADDRESS.match(text)):
        if address[1].lower() not in SCHEMES:
            raise VideoError(
                f"{shown_name(text)}: streams come by {', '.join(SCHEMES)}; give the path of a file without ://"
            )
        return VideoStream(text, limits, reconnect)
    return VideoFile(text, Path(video), limits)


def is_file_name(video: str) -> bool:
    """Whether a text names a file or folder, rather than a stream or a camera."""
    return not (video.startswith(CAMERA) or _ADDRESS.match(video))


def shown_name(video: str) -> str:
    """A text that names a video, as it may be printed and stored: an address is without its password."""
    return video if is_file_name(video) else without_password(video)
