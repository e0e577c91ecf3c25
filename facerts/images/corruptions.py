"""Image corruptions of a given severity, shared by the corruption benchmark, augmentation, and tests of quality scores.

Each function takes an image, ``(H, W, 3) uint8`` RGB, and a severity from 0 (unchanged) to 1 (barely recognizable as a
face), and returns a new image of the same size. Its docstring gives the severity's meaning in pixels or percent.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.images import decode, encode_jpeg

ImageArray = NDArray[np.uint8]

MAX_BLUR = 5.0
MAX_NOISE = 60.0
MAX_REDUCTION = 8.0
BEST_JPEG, WORST_JPEG = 95, 3
MAX_OCCLUSION = 0.75
DARKEST, BRIGHTEST = 0.08, 4.0
SMALL_JPEG = 30, 95
DOWNSCALING = cv2.INTER_AREA, cv2.INTER_LINEAR, cv2.INTER_CUBIC, cv2.INTER_NEAREST
UPSCALING = cv2.INTER_LINEAR, cv2.INTER_CUBIC, cv2.INTER_NEAREST


def gaussian_blur(image: ImageArray, radius: float) -> ImageArray:
    """Gaussian blur with a standard deviation of ``radius`` pixels (the radius in Fig. 7 of the RTS paper)."""
    if radius <= 0:
        return image.copy()
    return _uint8(cv2.GaussianBlur(image, (0, 0), radius, borderType=cv2.BORDER_REFLECT_101))


def small_face(image: ImageArray, side: int, random: np.random.Generator) -> ImageArray:
    """Imitate a face that was small in its photo: downscale, JPEG-compress with probability 0.5, and upscale again.

    ``side`` is the longer one of the downscaled image in pixels. Unlike ``low_resolution``, which always averages areas
    and interpolates linearly, this draws the interpolations (``DOWNSCALING``, ``UPSCALING``) and the JPEG quality
    (``SMALL_JPEG``) uniformly at random.
    """
    height, width = image.shape[:2]
    factor = side / max(height, width)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    downscaling = DOWNSCALING[random.integers(len(DOWNSCALING))]
    upscaling = UPSCALING[random.integers(len(UPSCALING))]
    reduced = _uint8(cv2.resize(image, size, interpolation=downscaling))
    if random.random() < 0.5:
        quality = int(random.integers(*SMALL_JPEG, endpoint=True))
        reduced = decode(encode_jpeg(reduced, quality), where="a compressed image")
    return _uint8(cv2.resize(reduced, (width, height), interpolation=upscaling))


def blur(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Gaussian blur; standard deviation up to 5 pixels in an image of 112."""
    return gaussian_blur(image, MAX_BLUR * severity * image.shape[0] / 112)


def noise(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Gaussian noise on every channel; standard deviation up to 60 of 255."""
    values = random.standard_normal(image.shape, dtype=np.float32) * np.float32(MAX_NOISE * severity)
    return _uint8(np.clip(np.rint(image + values), 0, 255))


def low_resolution(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Downscaling by a factor of up to 8 (112 to 14 pixels) and upscaling again."""
    height, width = image.shape[:2]
    factor = 1.0 + (MAX_REDUCTION - 1.0) * severity
    small = (max(1, round(width / factor)), max(1, round(height / factor)))
    reduced = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
    return _uint8(cv2.resize(reduced, (width, height), interpolation=cv2.INTER_LINEAR))


def jpeg(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """JPEG compression with quality from 95 down to 3; severity 0 leaves the image uncompressed."""
    if severity <= 0:
        return image.copy()
    quality = round(BEST_JPEG + (WORST_JPEG - BEST_JPEG) * severity)
    return decode(encode_jpeg(image, quality), where="a compressed image")


def occlusion(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """A rectangle of one random color, up to 75% of the width by 75% of the height, at a random position."""
    height, width = image.shape[:2]
    rows, columns = (round(MAX_OCCLUSION * severity * side) for side in (height, width))
    top, left = random.integers(0, height - rows + 1), random.integers(0, width - columns + 1)
    covered = image.copy()
    covered[top : top + rows, left : left + columns] = random.integers(0, 256, 3)
    return covered


def light(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Too dark (down to 8% of the light) or too bright (up to four times, clipped at white), at even odds."""
    extreme = DARKEST if random.random() < 0.5 else BRIGHTEST
    return _uint8(np.clip(np.rint(image * np.float32(extreme**severity)), 0, 255))


KINDS: dict[str, Callable[[ImageArray, float, np.random.Generator], ImageArray]] = {
    "blur": blur,
    "low_resolution": low_resolution,
    "jpeg": jpeg,
    "noise": noise,
    "occlusion": occlusion,
    "light": light,
}


def degrade(image: ImageArray, kind: str, severity: float, seed: int | tuple[int, ...] = 0) -> ImageArray:
    """Corrupt an image ``(H, W, 3) uint8`` RGB, by a severity of 0 to 1; the result is the same for the same seed."""
    if not 0.0 <= severity <= 1.0:
        raise ValueError(f"severity {severity} is not between 0 and 1")
    return KINDS[kind](image, severity, np.random.default_rng(seed))


def _uint8(image: NDArray[np.generic]) -> ImageArray:
    return image.astype(np.uint8, copy=False)
