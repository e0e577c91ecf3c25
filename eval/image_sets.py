"""The same faces as they are, degraded, and misaligned: each image is changed once, always in the same way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.images import CROP_SIZE, encode_png
from facerts.images.align import TEMPLATE, similarity_transform
from facerts.images.corruptions import degrade

Image = NDArray[np.uint8]
Change = Callable[[Image, int, int], Image]

# Written out, so that a kind which facerts.images.corruptions learns later does not change what was measured before.
DEGRADED_BY = ("blur", "low_resolution", "jpeg", "noise", "occlusion", "light")
POINT_NOISE = 0.1  # standard deviation, in eye distances
ZOOMS = (1.15, 0.85)  # tight, loose

# Keep the sets' draws apart where they have one seed.
_KIND, _DEGRADATION, _ALIGNMENT = 0xDE61, 0xDE62, 0xA116


class Changed(Source):
    """Another source whose aligned images are changed as they are read.

    Args:
        source: of aligned images.
        change: from an image, its index and the seed to the changed image; the same for the same index and seed.
        seed: of the changes.
    """

    def __init__(self, source: Source, name: str, change: Change, seed: int) -> None:
        self.name = f"{source.name}, {name}"
        self.labels, self.identities, self.other_files = source.labels, source.identities, source.other_files
        self._source, self._change, self._seed = source, change, seed

    def __len__(self) -> int:
        return len(self._source)

    def key(self, index: int) -> str:
        return self._source.key(index)

    def location(self, index: int) -> str:
        return self._source.location(index)

    def read(self, index: int) -> bytes:
        return encode_png(self.crop(index))

    def crop(self, index: int) -> Image:
        return self._change(self._source.crop(index), index, self._seed)


def clean(image: Image, index: int, seed: int) -> Image:
    """As it is."""
    return image


def degraded(image: Image, index: int, seed: int) -> Image:
    """Degraded once, by a kind drawn from ``DEGRADED_BY`` and at a strength drawn evenly from 0 to 1.

    So the set has sharp and poor images of most people, side by side.
    """
    random = np.random.default_rng((seed, index, _KIND))
    kind = DEGRADED_BY[random.integers(len(DEGRADED_BY))]
    return degrade(image, kind, random.random(), (seed, index, _DEGRADATION))


def misaligned(image: Image, index: int, seed: int) -> Image:
    """Aligned anew by points that are wrong, and cut tighter or looser by 15 %, by a coin.

    The five points of the template are moved by normal noise, as a detector would misplace them, and a similarity
    transform is fitted that brings them back to the template, scaled about the middle of the image. What lies beyond
    the image is its mirror: a photo would have something there, and black would give loose images away.
    """
    random = np.random.default_rng((seed, index, _ALIGNMENT))
    eyes = float(np.linalg.norm(TEMPLATE[1] - TEMPLATE[0]))
    found = TEMPLATE + random.normal(scale=POINT_NOISE * eyes, size=TEMPLATE.shape)
    middle = (CROP_SIZE - 1) / 2
    target = middle + ZOOMS[random.integers(len(ZOOMS))] * (TEMPLATE - middle)
    moved = cv2.warpAffine(
        image,
        similarity_transform(found, target),
        (CROP_SIZE, CROP_SIZE),
        flags=cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REFLECT_101,
    )
    return moved.astype(np.uint8, copy=False)


IMAGE_SETS: dict[str, Change] = {"clean": clean, "degraded": degraded, "misaligned": misaligned}


def open_image_set(name: str, source: Source, seed: int) -> Source:
    """A set of ``IMAGE_SETS`` by its name, from the images of a source."""
    return Changed(source, name, IMAGE_SETS[name], seed)


def hash_crops(source: Source) -> str:
    """SHA-256 of all crops' pixels, in order: what models see, however it was made."""
    digest = hashlib.sha256()
    for index in range(len(source)):
        digest.update(np.ascontiguousarray(source.crop(index)).data)
    return digest.hexdigest()
