"""The same faces clean, degraded and misaligned; each image is changed once, reproducibly."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.changed import ChangedCrops, degraded_at_random
from facerts.images import CROP_SIZE
from facerts.images.align import TEMPLATE, similarity_transform

Image = NDArray[np.uint8]
Change = Callable[[Image, int, int], Image]

POINT_NOISE = 0.1  # standard deviation, in eye distances
ZOOMS = (1.15, 0.85)  # tight, loose

# Separate the random numbers of the sets, which share a seed.
_ALIGNMENT, _JITTER = 0xA116, 0xA117


def clean(image: Image, index: int, seed: int) -> Image:
    """The image unchanged."""
    return image


def misaligned(image: Image, index: int, seed: int) -> Image:
    """Realign an image by inaccurate landmarks, and crop it 15% tighter or looser at random."""
    random = np.random.default_rng((seed, index, _ALIGNMENT))
    landmarks = _inaccurate(random)
    return _realigned(image, landmarks, ZOOMS[random.integers(len(ZOOMS))])


def jittered(image: Image, index: int, seed: int) -> Image:
    """Realign an image by inaccurate landmarks."""
    return _realigned(image, _inaccurate(np.random.default_rng((seed, index, _JITTER))), 1.0)


def tight(image: Image, index: int, seed: int) -> Image:
    """Crop an image 15% tighter."""
    return _realigned(image, TEMPLATE, ZOOMS[0])


def loose(image: Image, index: int, seed: int) -> Image:
    """Crop an image 15% looser."""
    return _realigned(image, TEMPLATE, ZOOMS[1])


def _inaccurate(random: np.random.Generator) -> NDArray[np.float64]:
    """The five landmarks of the template, moved by normal noise like those of an inaccurate detector."""
    eye_distance = float(np.linalg.norm(TEMPLATE[1] - TEMPLATE[0]))
    return TEMPLATE + random.normal(scale=POINT_NOISE * eye_distance, size=TEMPLATE.shape)


def _realigned(image: Image, landmarks: NDArray[np.floating], zoom: float) -> Image:
    """Map the landmarks to the template, scaled about the center of the image, by a similarity transform.

    The border is mirrored: in a photo there would be something, and black would mark loose crops.
    """
    center = (CROP_SIZE - 1) / 2
    warped = cv2.warpAffine(
        image,
        similarity_transform(landmarks, center + zoom * (TEMPLATE - center)),
        (CROP_SIZE, CROP_SIZE),
        flags=cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REFLECT_101,
    )
    return warped.astype(np.uint8, copy=False)


IMAGE_SETS: dict[str, Change] = {
    change.__name__: change for change in (clean, misaligned, jittered, tight, loose)
}
DEGRADED = "degraded"


def open_image_set(name: str, source: Source, seed: int) -> Source:
    """The images of a source, changed as the set of ``IMAGE_SETS`` with this name, or all degraded at random."""
    if name == DEGRADED:
        return degraded_at_random(source, seed)
    change = IMAGE_SETS[name]
    return ChangedCrops(source, name, lambda image, index: change(image, index, seed), f"{name}, seed {seed}")
