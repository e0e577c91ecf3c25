"""Detectors that are opened when they are first used; one of them takes small images for aligned crops."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.detection.detector import Detection, OpenDetector
from facerts.images import CROP_SIZE


class LazyDetector:
    """A detector that is opened, and whose model is perhaps downloaded, when it is first used."""

    def __init__(self, open_detector: Callable[[], OpenDetector]) -> None:
        self._open_detector = open_detector
        self._opening: Future[OpenDetector] | None = None
        self._lock = Lock()

    @property
    def detector(self) -> OpenDetector:
        """The detector, opened if it is not. Threads share one attempt; after a failure the next call tries again."""
        with self._lock:
            first = self._opening is None
            opening = self._opening = self._opening or Future()
        if first:
            try:
                opening.set_result(self._open_detector())
            except BaseException as error:
                self._opening = None
                opening.set_exception(error)
        return opening.result()


class AutoDetector(LazyDetector):
    """Finds the faces in photos, and takes images of 112 x 112 as aligned crops; see ``FaceFinder``.

    Args:
        identity: everything that the detections depend on, known before the detector is open.
    """

    def __init__(self, open_detector: Callable[[], OpenDetector], identity: str) -> None:
        super().__init__(open_detector)
        self.identity = f"auto, {identity}"

    def __reduce__(self) -> tuple[Any, ...]:
        return AutoDetector, (self._open_detector, self.identity.removeprefix("auto, "))

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection] | None:
        """The faces of a photo, the largest first; None if the image is itself an aligned crop."""
        return None if image.shape[:2] == (CROP_SIZE, CROP_SIZE) else self.detector(image)
