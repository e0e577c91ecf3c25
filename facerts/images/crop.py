"""Aligned crops, at the size that networks expect."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.errors import ImageError
from facerts.images.decoding import decode
from facerts.images.limits import in_flight

CROP_SIZE = 112
# At this size the eyes are five pixels apart, and training downscales no face further (``small_side``). Below it a
# network would see nothing but interpolation and still return a quality.
MIN_CROP_SIZE = 16


def decode_crop(data: bytes, *, where: str) -> NDArray[np.uint8]:
    """Decode an aligned crop to ``(112, 112, 3) uint8`` RGB; squares of other sizes are resized."""
    with in_flight():
        return as_crop(decode(data, where=where), where=where)


def as_crop(image: NDArray[np.uint8], *, where: str) -> NDArray[np.uint8]:
    """Resize a decoded image that is an aligned crop to ``(112, 112, 3) uint8`` RGB."""
    height, width = image.shape[:2]
    if height != width:
        raise ImageError(
            f"{where}: {width} x {height} pixels are not an aligned crop, which must be square; photos need a "
            "detector (--set detector=yunet)"
        )
    return fit_crop(image, where=where)


def fit_crop(image: NDArray[np.uint8], *, where: str = "the image") -> NDArray[np.uint8]:
    """Resize an aligned crop to ``(112, 112, 3) uint8`` RGB."""
    height, width = image.shape[:2]
    if height == width == CROP_SIZE:
        return image
    if min(height, width) < MIN_CROP_SIZE:
        raise ImageError(
            f"{where}: {width} x {height} pixels are too few for a face; "
            f"a crop must have at least {MIN_CROP_SIZE} x {MIN_CROP_SIZE}"
        )
    method = cv2.INTER_AREA if min(height, width) > CROP_SIZE else cv2.INTER_LINEAR
    return cv2.resize(image, (CROP_SIZE, CROP_SIZE), interpolation=method).astype(np.uint8, copy=False)
