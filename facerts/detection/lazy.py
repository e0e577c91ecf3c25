"""A detector that is opened when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from facerts.detection.base import Detection, Detector


class LazyDetector:
    """Opens a detector, perhaps downloading its model, for the first image that it is given; see ``base.Detector``.

    Args:
        open_detector: opens the detector.
        identity: everything that the detections depend on, known before the detector is open.
    """

    def __init__(self, open_detector: Callable[[], Detector], identity: str) -> None:
        self.identity = identity
        self._open_detector = open_detector
        self._opening: Future[Detector] | None = None
        self._lock = Lock()

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        return self._opened()(image)

    def _opened(self) -> Detector:
        """The detector. Threads that wait for it share one attempt; after a failure the next image tries again."""
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
