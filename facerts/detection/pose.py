"""The rotation of a head from five landmarks."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

# Eyes, nose and corners of the mouth of a mean head, in eye distances: x to the right, y down, z towards the camera.
# x and y are ArcFace's template; the depths are those of common generic head models.
MODEL = np.array(
    [[-0.5, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.571, 0.4], [-0.414, 1.154, 0.03], [0.414, 1.154, 0.03]]
)
_FIT = np.linalg.pinv(MODEL - MODEL.mean(axis=0))


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
