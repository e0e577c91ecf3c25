"""A face that was found, what finds faces, and what every detector needs: the order of faces, NMS and head pose."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Eyes, nose and corners of the mouth of a mean head, in eye distances: x to the right, y down, z towards the camera.
# x and y are YuNet's medians on held-out people; the depths are those of common generic head models.
MODEL = np.array([[-0.5, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.574, 0.4], [-0.416, 0.986, 0.03], [0.416, 0.986, 0.03]])
FIT = np.linalg.pinv(MODEL - MODEL.mean(axis=0))


@dataclass(frozen=True)
class Detection:
    """A face in a photo, in pixels of the photo.

    Attributes:
        box: ``(4,)`` left, top, right, bottom.
        points: ``(5, 2)`` eyes, nose, corners of the mouth, left to right in the photo turned by ``rotation``.
        score: confidence of the detector, 0 to 1.
        rotation: 0, 90, 180 or 270, the degrees by which the photo has to be turned clockwise for an upright face.
    """

    box: NDArray[np.float64]
    points: NDArray[np.float64]
    score: float
    rotation: int = 0

    @cached_property
    def pose(self) -> tuple[float, float, float]:
        """Yaw and pitch of the head in the turned photo, and its roll in the photo, in degrees; see ``head_pose``."""
        turned = self.points @ [1, 1j] * 1j ** (self.rotation // 90)
        yaw, pitch, roll = head_pose(np.stack([turned.real, turned.imag], axis=1))
        return yaw, pitch, (roll - self.rotation + 180) % 360 - 180

    @property
    def sides(self) -> tuple[float, float]:
        """Width and height of the box in pixels."""
        left, top, right, bottom = self.box.tolist()
        return right - left, bottom - top

    @property
    def area(self) -> float:
        """Area of the box in square pixels."""
        return math.prod(self.sides)

    def moved(self, pixel: NDArray[np.float64], offset: NDArray[np.float64]) -> Detection:
        """The face where a pixel has another size and the origin is elsewhere, x and y ``(2,)`` each."""
        corners = self.box.reshape(2, 2) * pixel + offset
        return Detection(corners.reshape(4), self.points * pixel + offset, self.score, self.rotation)

    def unturned(self, turns: int, height: int, width: int) -> Detection:
        """A face found in a photo of this size in pixels turned ``turns`` times by 90 degrees, as ``np.rot90`` does."""
        if turns == 0:
            return self

        def back(xy: NDArray[np.float64], height: int, width: int) -> NDArray[np.float64]:
            # Of complex numbers, which a multiplication by i turns clockwise, since y points down.
            origin = (0, width, width + 1j * height, 1j * height)[turns]
            found = xy @ [1, 1j] * 1j**turns + origin
            return np.stack([found.real, found.imag], axis=1)

        corners = back(self.box.reshape(2, 2), height, width)
        # A box has edges of pixels, and points are at their centers.
        return Detection(
            np.concatenate([corners.min(axis=0), corners.max(axis=0)]),
            back(self.points, height - 1, width - 1),
            self.score,
            -90 * turns % 360,
        )


class FaceFinder(Protocol):
    """Finds the faces in images; may be shared by threads. Every ``OpenDetector`` is one."""

    @property
    def identity(self) -> str:
        """Everything that the detections depend on."""
        ...

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection] | None:
        """The faces in an image, ``(H, W, 3) uint8`` RGB, the largest first; None if it is itself an aligned crop."""
        ...


class OpenDetector(FaceFinder, Protocol):
    """Finds the faces in photos; may be shared by threads."""

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        """The faces in an image, ``(H, W, 3) uint8`` RGB, the largest first."""
        ...


def largest_first(faces: Iterable[Detection]) -> list[Detection]:
    """The order in which every detector returns faces; where one face of a photo counts, it is the first.

    ``docs/decisions/index.md`` says why the largest.
    """
    return sorted(faces, key=lambda face: face.area, reverse=True)


def nms(
    boxes: NDArray[np.float64],
    scores: NDArray[np.floating],
    max_iou: float,
    passes: NDArray[np.integer] | None = None,
) -> list[int]:
    """Indices of the best of each group of overlapping boxes, best first.

    Args:
        boxes: ``(N, 4)`` left, top, right, bottom.
        scores: ``(N,)``; of equal scores the first counts as better.
        max_iou: maximum intersection over union of two boxes that are both kept.
        passes: ``(N,)`` the pass that found each box, after which boxes of the same pass were kept; None if none was.
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
        keep = shared <= max_iou * (areas[best] + areas[order] - shared)
        order = order[keep if passes is None else keep | (passes[order] == passes[best])]
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
    projection = FIT @ (landmarks - landmarks.mean(axis=0))
    if not projection.any():
        return 0.0, 0.0, 0.0
    left, _, right = np.linalg.svd(projection.T, full_matrices=False)
    rotation = left @ right
    # The depth axis of the head in the image: where the nose points.
    x, y = rotation[:, 2]
    yaw, pitch = np.arctan2(x, np.sqrt(max(0.0, 1.0 - x * x - y * y))), np.arcsin(np.clip(y, -1.0, 1.0))
    roll = np.arctan2(rotation[1, 0], rotation[0, 0])
    return float(np.degrees(yaw)), float(np.degrees(pitch)), float(np.degrees(roll))
