"""The same faces clean, degraded and misaligned; each image is changed once, reproducibly."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.changed import ChangedCrops
from facerts.images import CROP_SIZE
from facerts.images.align import TEMPLATE, similarity_transform
from facerts.images.corruptions import degrade

Image = NDArray[np.uint8]
Change = Callable[[Image, int, int], Image]

# An explicit list, so that kinds added to facerts.images.corruptions later do not change earlier measurements.
DEGRADED_BY = ("blur", "low_resolution", "jpeg", "noise", "occlusion", "light")
POINT_NOISE = 0.1  # standard deviation, in eye distances
ZOOMS = (1.15, 0.85)  # tight, loose

# Separate the random numbers of the sets, which share a seed.
_KIND, _DEGRADATION, _ALIGNMENT, _JITTER = 0xDE61, 0xDE62, 0xA116, 0xA117


def clean(image: Image, index: int, seed: int) -> Image:
    """The image unchanged."""
    return image


def degraded(image: Image, index: int, seed: int) -> Image:
    """Degrade an image by a random kind of ``DEGRADED_BY``, at a severity drawn uniformly from 0 to 1.

    The set therefore has both sharp and poor images of most people.
    """
    kind, severity = degradation(index, seed)
    return degrade(image, kind, severity, (seed, index, _DEGRADATION))


def degradation(index: int, seed: int) -> tuple[str, float]:
    """The kind and severity by which ``degraded`` degrades an image."""
    random = np.random.default_rng((seed, index, _KIND))
    return DEGRADED_BY[random.integers(len(DEGRADED_BY))], random.random()


def misaligned(image: Image, index: int, seed: int) -> Image:
    """Realign an image by inaccurate landmarks, and crop it 15 % tighter or looser at random."""
    random = np.random.default_rng((seed, index, _ALIGNMENT))
    landmarks = _inaccurate(random)
    return _realigned(image, landmarks, ZOOMS[random.integers(len(ZOOMS))])


def jittered(image: Image, index: int, seed: int) -> Image:
    """Realign an image by inaccurate landmarks."""
    return _realigned(image, _inaccurate(np.random.default_rng((seed, index, _JITTER))), 1.0)


def tight(image: Image, index: int, seed: int) -> Image:
    """Crop an image 15 % tighter."""
    return _realigned(image, TEMPLATE, ZOOMS[0])


def loose(image: Image, index: int, seed: int) -> Image:
    """Crop an image 15 % looser."""
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
    change.__name__: change for change in (clean, degraded, misaligned, jittered, tight, loose)
}


def open_image_set(name: str, source: Source, seed: int) -> Source:
    """The images of a source, changed as the set of ``IMAGE_SETS`` with this name."""
    change = IMAGE_SETS[name]
    return ChangedCrops(source, name, lambda image, index: change(image, index, seed), f"{name}, seed {seed}")


def hash_crops(source: Source) -> str:
    """SHA-256 of the pixels of all crops, in order."""
    digest = hashlib.sha256()
    for index in range(len(source)):
        digest.update(np.ascontiguousarray(source.crop(index)).data)
    return digest.hexdigest()
