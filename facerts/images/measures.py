"""What an aligned crop shows of its exposure, sharpness and noise, in three numbers."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

# The face in an aligned crop, from the brows to the chin and between the ears: left, top, right, bottom.
FACE_REGION = 16, 24, 96, 108

# Added to variances, in squared gray levels, so that the logarithm of a uniform area is finite.
FLOOR = 0.05


@dataclass(frozen=True)
class CropMeasures:
    """Measures of the face region of a crop.

    Attributes:
        luminance: the 75th percentile of the gray levels, 0 to 255.
        sharpness: how much of the detail is fine: the logarithm of the variance of details up to 2 pixels, the mean of
            those below and above 0.7 pixels, over that of details of 4 to 8 pixels. About -1.5 for sharp faces, -4 for
            blurred ones.
        noise: the logarithm of the variance of details up to 0.7 pixels over that of details of 0.7 to 2 pixels. About
            -2 for faces, 0.8 for noise.
    """

    luminance: float
    sharpness: float
    noise: float


def measure_crop(crop: NDArray[np.uint8]) -> CropMeasures:
    """Measure the face region of an aligned crop, ``(112, 112, 3) uint8`` RGB."""
    left, top, right, bottom = FACE_REGION
    gray = cv2.cvtColor(crop[top:bottom, left:right], cv2.COLOR_RGB2GRAY)
    levels = cv2.calcHist([gray], [0], None, [256], [0, 256]).cumsum()
    pixels = gray.astype(np.float32)
    at_1 = cv2.GaussianBlur(pixels, (3, 3), 0.7)
    at_2 = cv2.GaussianBlur(at_1, (0, 0), 2.0)
    # What is left has no finer details, so half the resolution holds it; Gaussians of 4 and 8 pixels are 2 and 4 there.
    at_4 = cv2.GaussianBlur(at_2[::2, ::2], (0, 0), 2.0)
    at_8 = cv2.GaussianBlur(at_4, (0, 0), 4.0)
    # In place: memory for new arrays of this size takes longer than the arithmetic.
    pixels -= at_1
    at_1 -= at_2
    at_4 -= at_8
    below_1, below_2, below_8 = map(_log_variance, (pixels, at_1, at_4))
    return CropMeasures(
        luminance=float(np.searchsorted(levels, 0.75 * levels[-1])),
        sharpness=(below_1 + below_2) / 2 - below_8,
        noise=below_1 - below_2,
    )


def _log_variance(values: NDArray[np.float32]) -> float:
    _, deviation = cv2.meanStdDev(values)
    return float(np.log(deviation.item() ** 2 + FLOOR))
