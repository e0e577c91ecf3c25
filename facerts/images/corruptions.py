"""Worse pictures on purpose: ladders, augmentation and tests of a quality's direction share these.

Each function takes ``(H, W, 3) uint8`` RGB and a strength from 0 (unchanged) to 1 (hardly a face any more)
and gives a new picture of the same size; its docstring says what the strength means in pixels or percent.
What is random is drawn from the generator given.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.images import decode, encode_jpeg

Picture = NDArray[np.uint8]

HARDEST_BLUR = 5.0
HARDEST_NOISE = 60.0
HARDEST_REDUCTION = 8.0
BEST_JPEG, WORST_JPEG = 95, 3
LARGEST_OCCLUSION = 0.75
DARKEST, BRIGHTEST = 0.08, 4.0
SMALL_JPEG = 30, 95
REDUCTIONS = cv2.INTER_AREA, cv2.INTER_LINEAR, cv2.INTER_CUBIC, cv2.INTER_NEAREST
ENLARGEMENTS = cv2.INTER_LINEAR, cv2.INTER_CUBIC, cv2.INTER_NEAREST


def gaussian_blur(image: Picture, radius: float) -> Picture:
    """Gaussian blur with a standard deviation of ``radius`` pixels (the radius of the RTS paper's Fig. 7)."""
    if radius <= 0:
        return image.copy()
    return _uint8(cv2.GaussianBlur(image, (0, 0), radius, borderType=cv2.BORDER_REFLECT_101))


def small_face(image: Picture, side: int, random: np.random.Generator) -> Picture:
    """A face that was small in its photo: reduced, half of the time compressed at that size, and enlarged again.

    Unlike ``low_resolution``, which always averages areas and interpolates linearly, it draws how the image is resized
    (``REDUCTIONS``, ``ENLARGEMENTS``) and the JPEG quality (``SMALL_JPEG``), all evenly.

    Args:
        image: ``(H, W, 3) uint8`` RGB.
        side: longer side of the reduced image in pixels.
        random: draws the interpolations and the compression.
    """
    height, width = image.shape[:2]
    factor = side / max(height, width)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    reduction = REDUCTIONS[random.integers(len(REDUCTIONS))]
    enlargement = ENLARGEMENTS[random.integers(len(ENLARGEMENTS))]
    reduced = _uint8(cv2.resize(image, size, interpolation=reduction))
    if random.random() < 0.5:
        quality = int(random.integers(*SMALL_JPEG, endpoint=True))
        reduced = decode(encode_jpeg(reduced, quality), where="a compressed image")
    return _uint8(cv2.resize(reduced, (width, height), interpolation=enlargement))


def blur(image: Picture, strength: float, random: np.random.Generator) -> Picture:
    """Gaussian blur, standard deviation up to 5 pixels of 112."""
    return gaussian_blur(image, HARDEST_BLUR * strength * image.shape[0] / 112)


def noise(image: Picture, strength: float, random: np.random.Generator) -> Picture:
    """Normal noise on every channel, standard deviation up to 60 of 255."""
    drawn = random.standard_normal(image.shape, dtype=np.float32) * np.float32(HARDEST_NOISE * strength)
    return _uint8(np.clip(np.rint(image + drawn), 0, 255))


def low_resolution(image: Picture, strength: float, random: np.random.Generator) -> Picture:
    """Reduced by area up to 8 times (112 to 14 pixels) and enlarged again."""
    height, width = image.shape[:2]
    factor = 1.0 + (HARDEST_REDUCTION - 1.0) * strength
    small = (max(1, round(width / factor)), max(1, round(height / factor)))
    reduced = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
    return _uint8(cv2.resize(reduced, (width, height), interpolation=cv2.INTER_LINEAR))


def jpeg(image: Picture, strength: float, random: np.random.Generator) -> Picture:
    """JPEG compression, quality from 95 down to 3; strength 0 compresses nothing."""
    if strength <= 0:
        return image.copy()
    quality = round(BEST_JPEG + (WORST_JPEG - BEST_JPEG) * strength)
    return decode(encode_jpeg(image, quality), where="a compressed picture")


def occlusion(image: Picture, strength: float, random: np.random.Generator) -> Picture:
    """A rectangle of one color, up to 75 % of the width by 75 % of the height, somewhere in the picture."""
    height, width = image.shape[:2]
    rows, columns = (round(LARGEST_OCCLUSION * strength * side) for side in (height, width))
    top, left = random.integers(0, height - rows + 1), random.integers(0, width - columns + 1)
    covered = image.copy()
    covered[top : top + rows, left : left + columns] = random.integers(0, 256, 3)
    return covered


def light(image: Picture, strength: float, random: np.random.Generator) -> Picture:
    """Too dark (down to 8 % of the light) or too bright (up to four times, cut off at white), by a coin."""
    extreme = DARKEST if random.random() < 0.5 else BRIGHTEST
    return _uint8(np.clip(np.rint(image * np.float32(extreme**strength)), 0, 255))


KINDS: dict[str, Callable[[Picture, float, np.random.Generator], Picture]] = {
    "blur": blur,
    "low_resolution": low_resolution,
    "jpeg": jpeg,
    "noise": noise,
    "occlusion": occlusion,
    "light": light,
}


def degrade(image: Picture, kind: str, strength: float, seed: int | tuple[int, ...] = 0) -> Picture:
    """One kind of degradation by its name in ``KINDS``, the same for the same seed.

    Args:
        image: ``(H, W, 3) uint8`` RGB.
        kind: see ``KINDS``.
        strength: 0 to 1.
        seed: of what is random in it.
    """
    if not 0.0 <= strength <= 1.0:
        raise ValueError(f"strength {strength} is not between 0 and 1")
    return KINDS[kind](image, strength, np.random.default_rng(seed))


def _uint8(image: NDArray[np.generic]) -> Picture:
    return image.astype(np.uint8, copy=False)
