"""Bytes or a file to an upright array.

OpenCV decodes; this module converts every image to upright 8-bit RGB. Before any pixels are allocated it refuses files
that are not images, are truncated, or could take unreasonable time or memory.

Supported formats are JPEG, PNG, WebP and BMP, recognized by their first bytes. Grayscale becomes three equal channels,
of 16-bit channels the upper 8 bits are kept, CMYK is converted, an alpha channel is dropped (the colors under it stay
as stored), and EXIF orientation is applied. HEIC, AVIF and TIFF are read by Pillow where it is installed.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.errors import ImageError
from facerts.images import bmp, jpeg, png, webp
from facerts.images.budget import reserve
from facerts.images.limits import MAX_BYTES, MAX_PIXELS, CheckedImage
from facerts.images.pillow import decode_with_pillow, pillow_format
from facerts.io.files import regular

# By suffix. Files of the last one are never read, but people have them, and an error is better than silence.
IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".heic", ".heif", ".avif", ".tif", ".tiff", ".gif")
)
# Other formats that people have, by their first bytes.
_BEGINNINGS = {b"GIF8": "GIF", b"%PDF": "PDF"}


def decode(
    data: bytes, *, where: str, max_pixels: int = MAX_PIXELS, pillow: bool = True
) -> NDArray[np.uint8]:
    """Decode an image to ``(H, W, 3) uint8`` RGB, upright.

    Args:
        max_pixels: images whose header claims more pixels are refused.
        pillow: let Pillow, where it is installed, decode formats that only it reads.
    """
    if not data:
        raise ImageError(f"{where}: the file is empty")
    if len(data) > MAX_BYTES:
        raise ImageError(f"{where}: the file exceeds the limit of {MAX_BYTES:,} bytes")
    known = pillow_format(data)
    if known and not pillow:
        raise ImageError(f"{where}: {known} is not read; convert it to JPEG or PNG")
    if known:
        return decode_with_pillow(data, known, where=where, max_pixels=max_pixels)
    height, width, pixels = _check(data, where, max_pixels)
    reserve(height, width)
    try:
        image = cv2.imdecode(np.frombuffer(pixels, np.uint8), cv2.IMREAD_COLOR_RGB)
    except cv2.error as error:
        raise ImageError(f"{where}: broken image ({error.err})") from error
    if image is None:
        raise ImageError(f"{where}: broken image, it cannot be decoded")
    if image.shape[:2] not in {(height, width), (width, height)}:
        raise ImageError(
            f"{where}: broken image, it has {image.shape[1]} x {image.shape[0]} pixels, but its header says "
            f"{width} x {height}"
        )
    return image.astype(np.uint8, copy=False)


def read(path: str | Path, *, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """Read and decode an image file; see ``decode``."""
    try:
        with open(path, "rb", opener=regular) as file:
            # One byte more than allowed, so that no huge file fills the memory.
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ImageError(f"{path}: cannot be read ({error.strerror})") from error
    return decode(data, where=str(path), max_pixels=max_pixels)


def _check(data: bytes, where: str, max_pixels: int) -> CheckedImage:
    if data[:2] == b"\xff\xd8":
        return jpeg.check(data, where, max_pixels)
    if data[:8] == png.SIGNATURE:
        return png.check(data, where, max_pixels)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return webp.check(data, where, max_pixels)
    if data[:2] == b"BM":
        return bmp.check(data, where, max_pixels)
    if known := _BEGINNINGS.get(data[:4]):
        raise ImageError(f"{where}: {known} is not read; convert it to JPEG or PNG")
    raise ImageError(f"{where}: not a JPEG, PNG, WebP or BMP image")
