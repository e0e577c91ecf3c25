"""Cameras of this machine, read by OpenCV: PyAV's packages have no drivers for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import cv2
import numpy as np

from facerts.errors import VideoError
from facerts.video.frames import Frame, FrameSampler, FrameSource, ReadReport, clock
from facerts.video.reconnection import Reconnection

PREFIX = "device:"


@dataclass
class Camera(FrameSource):
    """A camera.

    Args:
        number: of the device; 0 for the first.

    Attributes:
        reconnect: seconds without a frame for which a camera that has gone is opened again and again.
        report: how far it was read.
    """

    number: int
    reconnect: float = 60.0
    report: ReadReport = field(default_factory=ReadReport)
    live: bool = True

    @property
    def name(self) -> str:
        """The device, as commands take it."""
        return f"{PREFIX}{self.number}"

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
                        yield Frame(
                            self.report.until, np.ascontiguousarray(read[1][..., ::-1], dtype=np.uint8)
                        )
            finally:
                capture.release()
            if not attempts.wait():
                until = clock(self.report.until or 0)
                self.report.problem = (
                    f"gone at {until}, and did not come back within {self.reconnect:g} seconds"
                )
                return
            self.report.reconnects += 1
