"""Five landmarks to an aligned crop, and the only copy of the template."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.errors import ImageError
from facerts.images import CROP_SIZE

# ArcFace's template: eyes, nose, corners of the mouth, left to right in the image, in a crop of 112 x 112 pixels.
TEMPLATE = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]]
)


def similarity_transform(points: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
    """The ``(2, 3)`` rotation, scale and translation that map points onto a target, ``(K, 2)`` each, by least squares.

    Points must be finite and not all at the same position. Source: Umeyama, "Least-squares estimation of transformation
    parameters between two point patterns", IEEE TPAMI 13(4), 1991. In the plane the solution is a linear regression of
    complex numbers.
    """
    z, w = (np.asarray(values, dtype=np.float64) @ [1, 1j] for values in (points, target))
    z_mean, w_mean = z.mean(), w.mean()
    z -= z_mean
    spread = float(np.vdot(z, z).real)
    if not np.isfinite(spread) or spread < 1e-12:
        raise ImageError("the points are all at the same position, or not finite")
    rotation = np.vdot(z, w - w_mean) / spread
    offset = w_mean - rotation * z_mean
    return np.array([[rotation.real, -rotation.imag, offset.real], [rotation.imag, rotation.real, offset.imag]])


def align(image: NDArray[np.uint8], points: ArrayLike) -> NDArray[np.uint8]:
    """Crop a face so that its landmarks lie on the template.

    Args:
        image: ``(H, W, 3) uint8`` RGB.
        points: ``(5, 2)`` x and y in pixels: eyes, nose, corners of the mouth, left to right in the image.

    Returns:
        ``(112, 112, 3) uint8`` RGB; black where the crop extends beyond the image.
    """
    landmarks = np.asarray(points, dtype=np.float64)
    matrix = similarity_transform(landmarks, TEMPLATE)
    scale = float(np.hypot(matrix[0, 0], matrix[1, 0]))
    if scale < 0.5:
        # A bilinear warp samples only four pixels, so a large face is downscaled by area averaging first.
        image, landmarks = _downscale(image, landmarks, 2.0 * scale)
        matrix = similarity_transform(landmarks, TEMPLATE)
    crop = cv2.warpAffine(image, matrix, (CROP_SIZE, CROP_SIZE), flags=cv2.INTER_LINEAR)
    return crop.astype(np.uint8, copy=False)


def _downscale(
    image: NDArray[np.uint8], points: NDArray[np.float64], scale: float
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    height, width = image.shape[:2]
    size = max(1, round(width * scale)), max(1, round(height * scale))
    reduced = cv2.resize(image, size, interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)
    factor = np.array([size[0] / width, size[1] / height])
    # Pixels are areas: the center of pixel 0 lies half a pixel from the edge.
    return reduced, (points + 0.5) * factor - 0.5
