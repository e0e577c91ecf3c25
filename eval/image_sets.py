"""The held-out faces degraded or misaligned; each image is changed once, reproducibly."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.changed import ChangedCrops, degraded_at_random
from facerts.images import CROP_SIZE
from facerts.images.align import TEMPLATE, similarity_transform

Image = NDArray[np.uint8]

POINT_NOISE = 0.1  # standard deviation, in eye distances
ZOOMS = (1.15, 0.85)  # tight, loose
_ALIGNMENT = 0xA116


def open_image_set(name: str, source: Source, seed: int) -> Source:
    """The images of a source, all ``degraded`` at random or all ``misaligned``."""
    if name == "degraded":
        return degraded_at_random(source, seed)
    return ChangedCrops(source, name, lambda image, index: misaligned(image, index, seed), f"{name}, seed {seed}")


def misaligned(image: Image, index: int, seed: int) -> Image:
    """Realign an image by landmarks as noisy as an inaccurate detector's, 15% tighter or looser at random.

    The border is mirrored: in a photo there would be something, and black would mark loose crops.
    """
    random = np.random.default_rng((seed, index, _ALIGNMENT))
    eye_distance = float(np.linalg.norm(TEMPLATE[1] - TEMPLATE[0]))
    landmarks = TEMPLATE + random.normal(scale=POINT_NOISE * eye_distance, size=TEMPLATE.shape)
    center = (CROP_SIZE - 1) / 2
    zoom = ZOOMS[random.integers(len(ZOOMS))]
    warped = cv2.warpAffine(
        image,
        similarity_transform(landmarks, center + zoom * (TEMPLATE - center)),
        (CROP_SIZE, CROP_SIZE),
        flags=cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REFLECT_101,
    )
    return warped.astype(np.uint8, copy=False)
