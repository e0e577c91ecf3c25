"""Bytes or a file to an upright array.

OpenCV decodes; this module converts every image to upright 8-bit RGB. Before any pixels are allocated it refuses files
that are not images, are truncated, or could take unreasonable time or memory.

Supported formats are JPEG, PNG, WebP and BMP, recognized by their first bytes. Grayscale becomes three equal channels,
of 16-bit channels the upper 8 bits are kept, CMYK is converted, an alpha channel is dropped (the colors under it stay
as stored), EXIF orientation is applied, and of an animation the first frame is read. HEIC, AVIF, TIFF and GIF are read
by Pillow where it is installed.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.errors import ImageError
from facerts.images import bmp, jpeg, png, webp
from facerts.images.limits import MAX_BYTES, MAX_PIXELS, reserve
from facerts.images.pillow import decode_with_pillow
from facerts.io.console import warn
from facerts.io.files import address_problem, regular

# By suffix.
IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".heic", ".heif", ".avif", ".tif", ".tiff", ".gif")
)
# Formats by their first bytes: those that OpenCV decodes, those that Pillow reads, and others that people have.
_CHECKS = {"JPEG": jpeg.check, "PNG": png.check, "WebP": webp.check, "BMP": bmp.check}
_OF_PILLOW = frozenset(("HEIC", "AVIF", "TIFF", "GIF"))
_BEGINNINGS = {
    b"\xff\xd8": "JPEG",
    png.SIGNATURE: "PNG",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"GIF8": "GIF",
    b"%PDF": "PDF",
}
# Of ISO base media files.
_BRANDS = {b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIC", b"msf1": "HEIC", b"avif": "AVIF"}
# Hashes of the files without an end that were warned of: images are decoded again to be drawn in, and in each epoch.
_without_end: set[int] = set()


def decode(data: bytes, *, where: str, max_pixels: int = MAX_PIXELS, pillow: bool = True) -> NDArray[np.uint8]:
    """Decode an image to ``(H, W, 3) uint8`` RGB, upright.

    Args:
        max_pixels: images whose header claims more pixels are refused.
        pillow: let Pillow, where it is installed, decode formats that only it reads.
    """
    if not data:
        raise ImageError(f"{where}: the file is empty")
    if len(data) > MAX_BYTES:
        raise ImageError(f"{where}: the file exceeds the limit of {MAX_BYTES:,} bytes")
    known = _format(data)
    if not known:
        names = "JPEG, PNG, WebP, BMP, GIF, TIFF, HEIC or AVIF" if pillow else "JPEG, PNG, WebP or BMP"
        raise ImageError(f"{where}: not a {names} image")
    if pillow and known in _OF_PILLOW:
        return decode_with_pillow(data, known, where=where, max_pixels=max_pixels)
    if known not in _CHECKS:
        raise ImageError(f"{where}: {known} is not read; convert it to JPEG or PNG")
    checked = _CHECKS[known](data, where, max_pixels)
    image = _decoded(checked.data, checked.height, checked.width, where)
    if checked.other_end and hash(data) not in _without_end:
        other = _decoded(checked.other_end, checked.height, checked.width, where)
        if cv2.norm(image, other, cv2.NORM_INF):
            raise ImageError(f"{where}: the {known} is truncated")
        _without_end.add(hash(data))
        warn(f"{where}: the end of the {known} is missing, but all of its pixels are there")
    return image


def _decoded(pixels: bytes, height: int, width: int, where: str) -> NDArray[np.uint8]:
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


def read(path: str | Path) -> NDArray[np.uint8]:
    """Read and decode an image file; see ``decode``."""
    try:
        with open(path, "rb", opener=regular) as file:
            # One byte more than allowed, so that no huge file fills the memory.
            data = file.read(MAX_BYTES + 1)
    # A name with a NUL character is a ValueError.
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        problem = address_problem(path) or f"{path}: cannot be read ({reason})"
        raise ImageError(problem) from error
    return decode(data, where=str(path))


def pixels_problem(image: object) -> str:
    """What an object is if it is not an array of pixels, ``(H, W, 3) uint8``; empty if it is."""
    if not isinstance(image, np.ndarray):
        return type(image).__name__
    valid = image.ndim == 3 and image.shape[2] == 3 and image.dtype == np.uint8 and 0 not in image.shape
    return "" if valid else f"{image.shape} {image.dtype}"


def image_suffix(data: bytes) -> str:
    """The suffix for an image whose name has none, such as a record; ``.jpg`` if its format is unknown."""
    suffix = f".{_format(data).lower()}"
    return suffix if suffix in IMAGE_SUFFIXES - {".jpeg"} else ".jpg"


def _format(data: bytes) -> str:
    """The format of an encoded image; empty if it is none that is known.

    What OpenCV would take for a format must be checked as that format.
    """
    if data[4:8] == b"ftyp" and data[8:12] in _BRANDS:
        return _BRANDS[data[8:12]]
    if data[:4] == b"RIFF":
        return "WebP" if data[8:12] == b"WEBP" else ""
    return next((name for beginning, name in _BEGINNINGS.items() if data.startswith(beginning)), "")
