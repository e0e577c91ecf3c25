"""Video files, files in memory and streams, decoded by PyAV."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import VideoError, VideoLimitError, importing
from facerts.video.frames import Frame, FrameSampler, ReadReport, VideoLimits, clock

# Containers of one video. Not those that name further files or addresses, such as playlists (hls, dash, concat), nor
# sequences of images.
CONTAINERS = (
    *("mov", "mp4", "m4v", "3gp", "matroska", "webm", "avi", "mpegts", "mpeg", "mpegvideo", "ogg", "flv"),
    *("asf", "mxf", "nut", "dv", "gif", "mjpeg", "h264", "hevc", "rm", "vob"),
)
# What a file may open: itself.
FILE_PROTOCOLS = ("file",)
# Packets that cannot be decoded, one after the other, until a file is given up.
MAX_DAMAGED = 500
# A video that ends this much before its stated duration, in seconds, is cut off; the last frames of a sound one may be
# a little early.
MISSING_SECONDS = 1.0
# Pixels that are not square are stretched at most this much.
MAX_STRETCH = 4.0
# A decoder of HEVC may hold 24 frames, which are 800 MB at 4K and 32 bits a pixel. The one that is looked at is there
# four times more as RGB of 24 bits, which is four bits more for each of the 24.
RGB_BITS = 4
MAX_FRAME_BITS = 3840 * 2160 * (32 + RGB_BITS)
# Frames that are decoded at the same time hold memory.
DECODER_THREADS = 2
NO_CAMERA_TIME = 1 / 25
# Times that are exact in a file's ticks, such as 1.2, are so in seconds; finer than what tells periods apart.
TIME_DIGITS = 9


def import_av() -> Any:
    """PyAV."""
    with importing("videos need PyAV", "use"):
        import av
    return av


@dataclass
class VideoFile:
    """A video on disk or in memory, by its path or its bytes; errors and rows call it by its name."""

    name: str
    content: Path | bytes
    limits: VideoLimits = field(default_factory=VideoLimits)
    report: ReadReport = field(default_factory=ReadReport)
    live: bool = False

    @property
    def duration(self) -> float | None:
        """Seconds, as the file itself says; None if it does not."""
        with self._open() as container:
            return stated_duration(container, video_stream(container, self.name))

    def frames(self, fps: float) -> Iterator[Frame]:
        """See ``FrameSource``."""
        with self._open() as container:
            yield from decode_frames(container, self.name, FrameSampler(fps), self.limits, self.report)

    def _open(self) -> AbstractContextManager[Any]:
        if isinstance(self.content, bytes):
            opened: str | BytesIO = BytesIO(self.content)
        else:
            check_regular_file(self.content)
            # With the protocol in front, no name is taken for an address.
            opened = f"file:{os.path.abspath(self.content)}"
        return open_container(opened, self.name, protocols=FILE_PROTOCOLS, containers=CONTAINERS)


def check_regular_file(path: Path) -> None:
    """Refuse what is no file, such as a folder or a pipe."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise VideoError(f"{path}: cannot be read ({reason})") from error
    if not stat.S_ISREG(mode):
        raise VideoError(f"{path}: not a file; give a video file, an address such as rtsp://…, or device:0")


@contextmanager
def open_container(
    opened: str | BytesIO,
    name: str,
    *,
    protocols: tuple[str, ...],
    containers: tuple[str, ...],
    timeout: tuple[float, float] | None = None,
    options: Mapping[str, str] | None = None,
) -> Iterator[Any]:
    """A container of PyAV that opens nothing but what it may.

    Args:
        opened: address of the video with its protocol, or its bytes.
        name: what errors call it.
        protocols: which protocols FFmpeg may use, also for what the video itself names.
        containers: which formats it may be.
        timeout: seconds until it must be open, and within which data must come; None for none.
    """
    av = import_av()
    allowed = {"protocol_whitelist": ",".join(protocols), "format_whitelist": ",".join(containers)}
    try:
        container = av.open(
            opened,
            # No decoder looks into the file before it has its limits.
            container_options={**allowed, **(options or {}), "codec_whitelist": "none"},
            timeout=timeout,
            metadata_errors="replace",
        )
    except (av.error.FFmpegError, ValueError, MemoryError) as error:
        raise VideoError(f"{name}: {_not_a_video(av, error)}") from error
    try:
        yield container
    finally:
        container.close()


def _not_a_video(av: Any, error: Exception) -> str:
    # PyAV's errors are also those of Python with the same meaning.
    system = ConnectionError, FileNotFoundError, PermissionError, TimeoutError, av.error.HTTPError
    if isinstance(error, system):
        return f"cannot be opened ({_reason(error)})"
    return "cannot be opened: not a video of a known format, or damaged or cut off where it says what it contains"


def video_stream(container: Any, name: str) -> Any:
    """The first video in a container, which is not the cover of a song."""
    for stream in container.streams.video:
        cover = "attached_pic" in str(stream.disposition)
        if not cover:
            if stream.codec_context is None:
                raise VideoError(f"{name}: its video has a format that this version of PyAV cannot decode")
            return stream
    raise VideoError(f"{name}: there is no video in this file")


def stated_duration(container: Any, stream: Any) -> float | None:
    """Seconds, as the file says; None if it does not."""
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    return None if container.duration is None or container.duration <= 0 else container.duration / 1e6


def decode_frames(
    container: Any,
    name: str,
    sampler: FrameSampler,
    limits: VideoLimits,
    report: ReadReport,
    *,
    start: float | None = None,
    offset: float | None = None,
) -> Iterator[Frame]:
    """The frames of a container that a sampler wants, from a key frame before ``start`` on, where the video can.

    Damaged packets are passed over and counted. A problem that ends the video is in the report. ``offset`` is the time
    of the first frame; None for the video's own times.
    """
    stream = video_stream(container, name)
    _check_size(name, stream.codec_context, 0, limits)
    # Later frames may be larger, and are refused before they have memory.
    stream.codec_context.options = _decoder_options(limits)
    stream.codec_context.thread_type = "AUTO"
    stream.codec_context.thread_count = DECODER_THREADS
    duration = stated_duration(container, stream)
    if duration is not None:
        _check_seconds(name, duration, limits)
    clock = FrameClock(container, stream, offset)
    if start is not None:
        _seek(container, stream, start)
    ended = _Ended()
    for decoded in _decoded(container, stream, name, limits, report, ended):
        aspect_ratio = stream.sample_aspect_ratio or stream.codec_context.sample_aspect_ratio
        width = square_width(decoded.width, aspect_ratio)
        _check_size(name, decoded, width, limits)
        time = clock.time_of(decoded)
        report.frames += 1
        report.until = time if report.until is None else max(report.until, time)
        _check_seconds(name, time, limits)
        if limits.max_frames is not None and report.frames > limits.max_frames:
            raise VideoLimitError(f"{name}: more than {limits.max_frames:,} frames, the maximum")
        if sampler.wants(time):
            pixels = upright_pixels(decoded, width)
            if pixels is None:
                report.damaged += 1
            else:
                yield Frame(time, pixels)
            del pixels
        # No frame is kept while the next ones are decoded.
        del decoded
    report.problem = _problem(report, ended, duration)


class FrameClock:
    """Times of frames, in seconds since the video began, or after ``offset``, that of the first; they never go back."""

    def __init__(self, container: Any, stream: Any, offset: float | None = None) -> None:
        rate = stream.average_rate or stream.guessed_rate
        self.passed: float | None = None
        self._period = 1 / float(rate) if rate else NO_CAMERA_TIME
        self._tick = stream.time_base
        self._offset = offset
        self._zero: float | None = None
        if offset is None and container.start_time is not None:
            self._zero = container.start_time / 1e6

    def time_of(self, decoded: Any) -> float:
        """The time of the next decoded frame."""
        # In ticks of the stream, also for what the decoder held at the end, whose own unit PyAV does not set.
        stamp = None if decoded.pts is None else float(decoded.pts * self._tick)
        following = 0.0 if self.passed is None else self.passed + self._period
        if stamp is None:
            time = following
        else:
            if self._zero is None:
                self._zero = stamp - (self._offset or 0.0)
            time = stamp - self._zero
            if self.passed is not None and time <= self.passed:
                # The stamps begin anew, as in files that were joined end to end.
                self._zero = stamp - following
                time = following
        self.passed = round(max(time, 0.0), TIME_DIGITS)
        return self.passed


@dataclass
class _Ended:
    """Why the packets of a container ended.

    Attributes:
        error: the error of the last attempt to read; None at a proper end.
        last: time of the last packet of any kind, such as sound, in seconds; None without one.
    """

    error: str | None = None
    last: float | None = None


def _decoded(
    container: Any, stream: Any, name: str, limits: VideoLimits, report: ReadReport, ended: _Ended
) -> Iterator[Any]:
    av = import_av()
    packets = container.demux()
    in_a_row = 0
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except (av.error.FFmpegError, MemoryError) as error:
            ended.error = _reason(error)
            # What the decoder still holds.
            yield from _flushed(av, stream, report)
            return
        if packet.pts is not None and packet.time_base is not None and container.start_time is not None:
            seconds = float(packet.pts * packet.time_base) - container.start_time / 1e6
            ended.last = seconds if ended.last is None else max(ended.last, seconds)
        if packet.stream.index != stream.index:
            continue
        try:
            frames = packet.decode()
            in_a_row = 0
        except av.error.EOFError:
            return
        except (av.error.FFmpegError, MemoryError) as error:
            report.damaged += 1
            in_a_row += 1
            if in_a_row >= MAX_DAMAGED:
                ended.error = _reason(error)
                return
            frames = []
        # Also without a frame, as decoders hold many before they give one out.
        _check_size(name, stream.codec_context, 0, limits)
        while frames:
            report.damaged += frames[0].is_corrupt
            yield frames.pop(0)


def _flushed(av: Any, stream: Any, report: ReadReport) -> Iterator[Any]:
    try:
        yield from stream.codec_context.decode(None)
    except (av.error.FFmpegError, MemoryError):
        report.damaged += 1


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _problem(report: ReadReport, ended: _Ended, duration: float | None) -> str | None:
    """Why a video was not read to its end; None if it was."""
    until = report.until
    of = "" if duration is None else f" of {clock(duration)}"
    if until is None:
        damaged = f" ({ended.error})" if ended.error else ""
        return f"none of its frames can be decoded{damaged}"
    if ended.error is not None:
        return f"damaged; it could be read until {clock(until)}{of} ({ended.error})"
    reached = until if ended.last is None else max(until, ended.last)
    if duration is not None and reached < duration - max(MISSING_SECONDS, 0.02 * duration):
        return f"cut off; it could be read until {clock(until)}{of}"
    return None


def _seek(container: Any, stream: Any, start: float) -> None:
    """Go to a key frame before a time, or to the beginning where the file cannot."""
    av = import_av()
    if container.start_time is None:
        # The times after a jump would not be known.
        return
    try:
        container.seek(int(container.start_time + 1e6 * start), backward=True)
    except (av.error.FFmpegError, OverflowError):
        return
    stream.codec_context.flush_buffers()


def _decoder_options(limits: VideoLimits) -> dict[str, str]:
    # With room for the blocks that frames are coded in, which reach over their sides.
    largest = limits.max_pixels * 9 // 8 + (1 << 14)
    # Strictly, so that a decoder waits for the order of frames where a video does not say how long.
    return {"max_pixels": str(largest), "strict": "strict"}


def _check_size(name: str, frame: Any, width: int, limits: VideoLimits) -> None:
    """Refuse frames, or a decoder of frames, beyond the limits; ``width`` is theirs with square pixels."""
    bits = 0 if frame.format is None else frame.format.padded_bits_per_pixel
    width, most = max(width, frame.width), min(limits.max_pixels, MAX_FRAME_BITS // (bits + RGB_BITS))
    if width * frame.height > most:
        of = f" of {bits} bits" if most < limits.max_pixels else ""
        raise VideoLimitError(
            f"{name}: frames of {width} x {frame.height} pixels{of} are more than {most:,}, the maximum; "
            "scale the video down"
        )


def _check_seconds(name: str, seconds: float, limits: VideoLimits) -> None:
    if limits.max_seconds is not None and seconds > limits.max_seconds:
        raise VideoLimitError(f"{name}: longer than {limits.max_seconds:g} seconds, the maximum")


def square_width(width: int, aspect_ratio: Any) -> int:
    """The width of a frame whose pixels have this ratio of width to height, when they are made square."""
    try:
        stretch = float(aspect_ratio) if aspect_ratio else 1.0
    except ZeroDivisionError:
        return width
    return max(1, round(width * stretch)) if 1 / MAX_STRETCH <= stretch <= MAX_STRETCH else width


def upright_pixels(decoded: Any, width: int) -> NDArray[np.uint8] | None:
    """A decoded frame as ``(H, W, 3) uint8`` RGB, of this width and then upright; None if it cannot be converted."""
    av = import_av()
    try:
        pixels = decoded.reformat(width=width, height=decoded.height, format="rgb24").to_ndarray()
    except (av.error.FFmpegError, ValueError, MemoryError):
        return None
    return upright(pixels, _display_matrix(decoded))


def _display_matrix(decoded: Any) -> NDArray[np.int32] | None:
    try:
        # The frame's own would be in a cycle with it, and keep it in memory.
        data = import_av().sidedata.sidedata.SideDataContainer(decoded).get("DISPLAYMATRIX")
    except ValueError:
        # A kind that PyAV has no name for, such as EXIF, hides the matrix; it tells the rotation all the same.
        angle = math.radians(-decoded.rotation)
        turned = [math.cos(angle), math.sin(angle), 0, -math.sin(angle), math.cos(angle), 0, 0, 0, 1]
        return np.round(65536 * np.array(turned)).astype(np.int32).reshape(3, 3)
    values = np.frombuffer(b"" if data is None else bytes(data), dtype=np.int32)
    return values.reshape(3, 3) if values.size == 9 else None


def upright(pixels: NDArray[np.uint8], matrix: NDArray[np.int32] | None) -> NDArray[np.uint8]:
    """Pixels ``(H, W, 3) uint8`` turned and mirrored as a display matrix ``(3, 3)`` says, by quarter turns.

    Its first two rows and columns take (x, y) as a row vector to where it is shown; None for upright pixels.
    """
    if matrix is None:
        return pixels
    (a, b), (c, d) = matrix[:2, :2].astype(np.int64).tolist()
    if abs(a) + abs(d) < abs(b) + abs(c):
        # What is shown at (x, y) comes from (y, x).
        pixels, across, down = pixels.transpose(1, 0, 2), c, b
    else:
        across, down = a, d
    return np.ascontiguousarray(pixels[:: -1 if down < 0 else 1, :: -1 if across < 0 else 1])
