"""Bytes or a file to an upright array.

OpenCV decodes; this module makes every image the same thing, 8-bit RGB the right way up, and refuses what is no image,
is cut short, or could take unreasonable time or memory, before its pixels are allocated.

What is read: JPEG, PNG, WebP and BMP, told by their first bytes. Gray becomes three equal channels, 16 bits become the
upper 8, CMYK is converted, an alpha channel is dropped (the colors under it stay as stored), and EXIF orientation is
applied.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.errors import ImageError
from facerts.images import bmp, jpeg, png, webp
from facerts.images.limits import MAX_BYTES, MAX_PIXELS, Checked


def decode(data: bytes, *, where: str, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """Decode an image.

    Args:
        data: the encoded bytes.
        where: names the image in errors: its path, or record and file.
        max_pixels: larger images are refused, by their header.

    Returns:
        ``(H, W, 3) uint8`` RGB, upright.

    Raises:
        ImageError: empty, of an unknown format, broken, cut short, or beyond a limit (``facerts.images.limits``).
    """
    if not data:
        raise ImageError(f"{where}: the file is empty")
    if len(data) > MAX_BYTES:
        raise ImageError(f"{where}: more bytes than the limit of {MAX_BYTES:,}")
    height, width, pixels = _check(data, where, max_pixels)
    try:
        image = cv2.imdecode(np.frombuffer(pixels, np.uint8), cv2.IMREAD_COLOR_RGB)
    except cv2.error as error:
        raise ImageError(f"{where}: broken picture ({error.err})") from error
    if image is None:
        raise ImageError(f"{where}: broken picture, it cannot be decoded")
    if image.shape[:2] not in {(height, width), (width, height)}:
        raise ImageError(
            f"{where}: broken picture, it has {image.shape[1]} x {image.shape[0]} pixels and its header says "
            f"{width} x {height}"
        )
    return image.astype(np.uint8, copy=False)


def read(path: str | Path, *, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """Decode a file; see ``decode``."""
    try:
        with open(path, "rb") as file:
            # A byte more than is allowed, so that neither a huge file nor an endless one fills the memory.
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ImageError(f"{path}: cannot be read ({error.strerror})") from error
    return decode(data, where=str(path), max_pixels=max_pixels)


def _check(data: bytes, where: str, max_pixels: int) -> Checked:
    if data[:2] == b"\xff\xd8":
        return jpeg.check(data, where, max_pixels)
    if data[:8] == png.SIGNATURE:
        return png.check(data, where, max_pixels)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return webp.check(data, where, max_pixels)
    if data[:2] == b"BM":
        return bmp.check(data, where, max_pixels)
    raise ImageError(f"{where}: not a JPEG, PNG, WebP or BMP picture")
