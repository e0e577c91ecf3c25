"""Aligned crop or photo: the decision for each image, by its size."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.detection.detector import Detection, Detector
from facerts.images import CROP_SIZE


class AutoDetector:
    """Finds the faces in photos, and takes images of 112 x 112 as aligned crops; see ``FaceFinder``.

    The detector is opened, and its model perhaps downloaded, for the first photo; ``identity``, everything that the
    detections depend on, is known before.
    """

    def __init__(self, open_detector: Callable[[], Detector], identity: str) -> None:
        self.identity = f"auto, {identity}"
        self._open_detector = open_detector
        self._opening: Future[Detector] | None = None
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return AutoDetector, (self._open_detector, self.identity.removeprefix("auto, "))

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection] | None:
        """The faces of a photo, the largest first; None if the image is itself an aligned crop."""
        return None if image.shape[:2] == (CROP_SIZE, CROP_SIZE) else self.detector(image)

    @property
    def detector(self) -> Detector:
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
