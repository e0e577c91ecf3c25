"""YuNet through OpenCV.

Wu, Peng, Yu: "YuNet: A Tiny Millisecond-level Face Detector", Machine Intelligence Research 20, 2023.
"""

from __future__ import annotations

from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.detect.base import Detection
from facerts.errors import ModelError
from facerts.files import sha256_file

LOG_ERRORS = 2
# OpenCV 5 moved the function; both give the level that was set before.
_set_log_level: Any = getattr(cv2, "setLogLevel", None) or cv2.utils.logging.setLogLevel


class YuNet:
    """See ``base.Detector``.

    Args:
        model: ``face_detection_yunet_2023mar.onnx`` or another of its kind.
        threshold: least score of a face.
        size: longest side in pixels that larger photos are reduced to; YuNet misses faces that fill a large photo.

    Raises:
        ModelError: no such file, or OpenCV cannot load it.
    """

    def __init__(self, model: str | Path, *, threshold: float = 0.6, size: int = 1024) -> None:
        self._model = Path(model)
        self._threshold = threshold
        self._size = size
        # OpenCV's detector has state, so one is taken for each photo and put back behind it.
        self._idle: SimpleQueue[Any] = SimpleQueue()
        if not self._model.is_file():
            raise ModelError(f"{model}: no such detector model")
        self.identity = f"yunet {sha256_file(self._model)}, threshold {threshold:g}, side {size}"
        self._idle.put(self._open())

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        height, width = image.shape[:2]
        scale = min(1.0, self._size / max(height, width))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        if scale < 1.0:
            image = cv2.resize(image, size, interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)
        try:
            detector = self._idle.get_nowait()
        except Empty:
            detector = self._open()
        detector.setInputSize(size)
        _, found = detector.detect(cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
        self._idle.put(detector)
        if found is None:
            return []
        factor = np.array([width / size[0], height / size[1]])
        faces = [_detection(row.astype(np.float64), factor) for row in found]
        return sorted(faces, key=lambda face: face.area, reverse=True)

    def _open(self) -> Any:
        # OpenCV 5 warns of a backend that it does not use anyway.
        level = _set_log_level(LOG_ERRORS)
        try:
            return cv2.FaceDetectorYN.create(str(self._model), "", (320, 320), self._threshold, 0.3, 5000)
        except cv2.error as error:
            raise ModelError(f"{self._model}: OpenCV cannot load it as YuNet ({error.err})") from error
        finally:
            _set_log_level(level)


def _detection(row: NDArray[np.float64], factor: NDArray[np.float64]) -> Detection:
    """A row is x, y, width, height, five points, score."""
    corner, size = row[:2], row[2:4]
    box = np.concatenate([corner * factor, (corner + size) * factor])
    return Detection(box, row[4:14].reshape(5, 2) * factor, float(row[14]))
