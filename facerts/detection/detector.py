"""A face that was found, what finds faces, and what every detector needs: the order of faces, NMS and head pose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.images import CROP_SIZE

# Eyes, nose and corners of the mouth of a mean head, in eye distances: x to the right, y down, z towards the camera.
# x and y are YuNet's medians on held-out people; the depths are those of common generic head models.
MODEL = np.array(
    [[-0.5, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.574, 0.4], [-0.416, 0.986, 0.03], [0.416, 0.986, 0.03]]
)
_FIT = np.linalg.pinv(MODEL - MODEL.mean(axis=0))


@dataclass(frozen=True)
class Detection:
    """A face in a photo, in pixels of the photo.

    Attributes:
        box: ``(4,)`` left, top, right, bottom.
        points: ``(5, 2)`` eyes, nose, corners of the mouth, left to right in the image.
        score: confidence of the detector, 0 to 1.
    """

    box: NDArray[np.float64]
    points: NDArray[np.float64]
    score: float

    @cached_property
    def pose(self) -> tuple[float, float, float]:
        """Yaw, pitch and roll of the head in degrees, see ``head_pose``."""
        return head_pose(self.points)

    @property
    def area(self) -> float:
        """Area of the box in square pixels."""
        left, top, right, bottom = self.box
        return float((right - left) * (bottom - top))

    @property
    def shorter_side(self) -> float:
        """The shorter side of the box in pixels."""
        left, top, right, bottom = self.box
        return float(min(right - left, bottom - top))


class OpenDetector(Protocol):
    """Finds faces in photos; may be shared by threads."""

    @property
    def identity(self) -> str:
        """Everything that the detections depend on: kind, hash of the model, settings."""
        ...

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        """Detect faces in an image, ``(H, W, 3) uint8`` RGB; the largest comes first."""
        ...


class FaceFinder(Protocol):
    """Finds the faces in images; may be shared by threads. Every ``OpenDetector`` is one, as is ``AutoDetector``."""

    @property
    def identity(self) -> str:
        """Everything that the detections depend on."""
        ...

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection] | None:
        """The faces in an image, ``(H, W, 3) uint8`` RGB, the largest first; None if it is itself an aligned crop."""
        ...


def largest_first(faces: Iterable[Detection]) -> list[Detection]:
    """The order in which every detector returns faces; where one face of a photo counts, it is the first.

    ``docs/decisions/index.md`` says why the largest.
    """
    return sorted(faces, key=lambda face: face.area, reverse=True)


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

    The detector's ``identity``, everything that the detections depend on, is known before it is open.
    """

    def __init__(self, open_detector: Callable[[], OpenDetector], identity: str) -> None:
        super().__init__(open_detector)
        self.identity = f"auto, {identity}"

    def __reduce__(self) -> tuple[Any, ...]:
        return AutoDetector, (self._open_detector, self.identity.removeprefix("auto, "))

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection] | None:
        """The faces of a photo, the largest first; None if the image is itself an aligned crop."""
        return None if image.shape[:2] == (CROP_SIZE, CROP_SIZE) else self.detector(image)


def nms(boxes: NDArray[np.float64], scores: NDArray[np.floating], max_iou: float) -> list[int]:
    """Indices of the best of each group of overlapping boxes, best first.

    Args:
        boxes: ``(N, 4)`` left, top, right, bottom.
        scores: ``(N,)``; of equal scores the first counts as better.
        max_iou: maximum intersection over union of two boxes that are both kept.
    """
    areas = np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1)
    order = np.argsort(-scores, kind="stable")
    kept = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(int(best))
        upper = np.maximum(boxes[best, :2], boxes[order, :2])
        lower = np.minimum(boxes[best, 2:], boxes[order, 2:])
        shared = np.prod(np.maximum(lower - upper, 0), axis=1)
        # Multiplied rather than divided, since the union of two empty boxes is 0.
        order = order[shared <= max_iou * (areas[best] + areas[order] - shared)]
    return kept


def head_pose(points: ArrayLike) -> tuple[float, float, float]:
    """Yaw, pitch and roll in degrees, under scaled orthographic projection of a mean head.

    Yaw, -90 to 90, is positive if the nose points to the right of the image, pitch if it points down; roll, -180 to
    180, if the head is turned clockwise in the image.

    Args:
        points: ``(5, 2)`` x and y in pixels: eyes, nose, corners of the mouth, left to right in the image.

    Returns:
        Zeros if the points are all at the same position.

    Source: DeMenthon and Davis, "Model-based object pose in 25 lines of code", IJCV 15, 1995 (its first step, POS).
    """
    landmarks = np.asarray(points, dtype=np.float64)
    projection = _FIT @ (landmarks - landmarks.mean(axis=0))
    if not projection.any():
        return 0.0, 0.0, 0.0
    left, _, right = np.linalg.svd(projection.T, full_matrices=False)
    rotation = left @ right
    # The depth axis of the head in the image: where the nose points.
    x, y = rotation[:, 2]
    yaw, pitch = np.arctan2(x, np.sqrt(max(0.0, 1.0 - x * x - y * y))), np.arcsin(np.clip(y, -1.0, 1.0))
    roll = np.arctan2(rotation[1, 0], rotation[0, 0])
    return float(np.degrees(yaw)), float(np.degrees(pitch)), float(np.degrees(roll))
