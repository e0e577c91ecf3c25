"""Streams by their address and cameras of this machine, opened again when they drop.

OpenCV reads cameras, as PyAV's packages have no drivers for them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import cv2
import numpy as np

from facerts.errors import VideoError, VideoLimitError
from facerts.video.frames import Frame, FrameSampler, FrameSource, ReadReport, VideoLimits, clock
from facerts.video.video_file import CONTAINERS, decode_frames, open_container, stated_duration, video_stream

SCHEMES = ("http", "https", "rtmp", "rtmps", "rtp", "rtsp", "rtsps", "srt", "tcp", "udp")
# No file of this machine, whatever a playlist names.
PROTOCOLS = ("http", "https", "httpproxy", "tcp", "tls", "udp", "rtp", "rtmp", "rtmps", "srt", "crypto")
STREAM_CONTAINERS = (*CONTAINERS, "hls", "rtsp", "rtp", "sdp", "mpjpeg", "live_flv", "aac", "mp3")
# Seconds until a stream must be open, and within which data must come.
OPEN_SECONDS, READ_SECONDS = 15.0, 15.0
# Seconds between the first two attempts to open what has dropped, and at most between others.
FIRST_DELAY, MAX_DELAY = 0.5, 10.0
# Begins the name of a camera.
CAMERA = "device:"
# Who opens a stream, with a password; its slashes may not be escaped, but what follows a host's colon is a port.
_USER = re.compile(r"(?<=://)(?:[^/?#]*|[^/?#:@\[]*:(?!\d*(?:[/?#]|$)).*)@")


@dataclass
class Reconnection:
    """Waits between attempts, twice as long each time, up to ten seconds, for ``seconds`` without a frame."""

    seconds: float
    _delay: float = FIRST_DELAY
    _since: float = field(default_factory=time.monotonic)

    def reset(self) -> None:
        """A frame has come."""
        self._delay, self._since = FIRST_DELAY, time.monotonic()

    def wait(self) -> bool:
        """Wait until the next attempt; False if there is to be none."""
        left = self.seconds - (time.monotonic() - self._since)
        if left <= 0:
            return False
        time.sleep(min(self._delay, left))
        self._delay = min(2 * self._delay, MAX_DELAY)
        return True

    def given_up(self, report: ReadReport) -> str:
        """When the source went, and for how long it was waited for."""
        return f"at {clock(report.until or 0)}, and did not come back within {self.seconds:g} seconds"


@dataclass
class VideoStream(FrameSource):
    """A stream, by its address with the protocol.

    One that has dropped is opened again and again for ``reconnect`` seconds without a frame.
    """

    address: str
    limits: VideoLimits = field(default_factory=VideoLimits)
    reconnect: float = 60.0
    report: ReadReport = field(default_factory=ReadReport)
    live: bool = True

    @property
    def name(self) -> str:
        """The address without a password."""
        return without_password(self.address)

    def frames(self, fps: float) -> Iterator[Frame]:
        """See ``FrameSource``; a stream with an end goes on where it dropped, others with the time that has passed."""
        sampler = FrameSampler(fps)
        attempts = Reconnection(self.reconnect)
        began: float | None = None
        while True:
            try:
                with open_container(
                    self.address,
                    self.name,
                    protocols=PROTOCOLS,
                    containers=STREAM_CONTAINERS,
                    timeout=(OPEN_SECONDS, READ_SECONDS),
                    options={"rtsp_transport": "tcp"} if self.address.startswith("rtsp") else None,
                ) as container:
                    ends = stated_duration(container, video_stream(container, self.name)) is not None
                    for frame in decode_frames(
                        container,
                        self.name,
                        sampler,
                        self.limits,
                        self.report,
                        start=self.report.until if ends else None,
                        offset=None if ends else 0.0 if began is None else time.monotonic() - began,
                    ):
                        began = time.monotonic() - frame.time if began is None else began
                        attempts.reset()
                        yield frame
                if ends and self.report.problem is None:
                    return
                problem = self.report.problem
            except VideoLimitError:
                raise
            except VideoError as error:
                if began is None:
                    # Never open at all: rather a wrong address than a drop.
                    raise
                problem = str(error).removeprefix(f"{self.name}: ")
            if not attempts.wait():
                why = "" if problem is None else f" ({problem})"
                self.report.problem = f"ended or dropped {attempts.given_up(self.report)}{why}"
                return
            self.report.reconnects += 1


@dataclass
class Camera(FrameSource):
    """A camera, by the number of its device; 0 is the first.

    One that has gone is opened again and again for ``reconnect`` seconds without a frame.
    """

    number: int
    reconnect: float = 60.0
    report: ReadReport = field(default_factory=ReadReport)
    live: bool = True

    @property
    def name(self) -> str:
        """The device, as commands take it."""
        return f"{CAMERA}{self.number}"

    def frames(self, fps: float) -> Iterator[Frame]:
        """See ``FrameSource``; times are those of this machine's clock."""
        sampler = FrameSampler(fps)
        attempts = Reconnection(self.reconnect)
        began = time.monotonic()
        while True:
            capture = cv2.VideoCapture(self.number)
            try:
                if not capture.isOpened() and self.report.frames == 0:
                    raise VideoError(f"{self.name}: there is no such camera, or another program uses it")
                while (read := capture.read())[0]:
                    attempts.reset()
                    self.report.frames += 1
                    self.report.until = time.monotonic() - began
                    if sampler.wants(self.report.until):
                        yield Frame(self.report.until, np.ascontiguousarray(read[1][..., ::-1], dtype=np.uint8))
            finally:
                capture.release()
            if not attempts.wait():
                self.report.problem = f"gone {attempts.given_up(self.report)}"
                return
            self.report.reconnects += 1


def without_password(address: str) -> str:
    """An address as it may be printed."""
    return _USER.sub("…@", address, count=1)
