"""Limits on image files and on images in flight.

Decoding a hostile file takes seconds at most and never more than 1 GB of memory.

A file of less than 1 MB within all limits takes at most about two seconds on one core and 750 MB. docs/limits.md lists
the limits in a table.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from facerts.errors import ImageError
from facerts.io.map_ahead import ByteBudget

# No image worth decoding is larger; anything larger would only fill the memory.
MAX_BYTES = 256 << 20
MAX_PIXELS = 64_000_000
# OpenCV copies the data of up to 65,535 EXIF entries; in a JPEG, EXIF cannot be larger than this.
MAX_EXIF_BYTES = (1 << 16) - 1
# Encoders write up to about twenty scans. Even a tiny scan costs a pass over its samples, so the total number of
# samples is limited too: sixteen passes over one component of the largest image.
MAX_JPEG_SCANS = 100
MAX_JPEG_SCAN_SAMPLES = 16 * MAX_PIXELS
# Color profiles and depth maps are split into segments of 64 KB.
MAX_JPEG_SEGMENTS = 10_000
# 300 KB of Huffman codes can expand to 400 MB of tables, on top of 11 bytes per pixel.
MAX_LOSSLESS_WEBP_PIXELS = 25_000_000
TOO_LARGE = "scale the image down or cut it into parts"
# Of the decoded images that all threads work on: fourteen photos of 12 megapixels, or two of the largest.
MAX_BYTES_IN_FLIGHT = 512 << 20

_budget = ByteBudget(MAX_BYTES_IN_FLIGHT)
_thread = threading.local()


class CheckedImage(NamedTuple):
    """An image file within the limits: its size from the header, before EXIF orientation, and what to decode of it.

    Attributes:
        data: pixels and orientation alone.
        other_end: the same with other bytes behind, where the file ends within the pixels; no pixel may depend on them.
    """

    height: int
    width: int
    data: bytes
    other_end: bytes = b""


def check_pixels(height: int, width: int, limit: int, where: str, *, scope: str = "") -> None:
    """Check the size that a header claims; ``scope`` says where the limit does not apply to every image."""
    if height < 1 or width < 1:
        raise ImageError(f"{where}: its header claims {width} x {height} pixels")
    if height * width > limit:
        raise ImageError(f"{where}: {width} x {height} pixels are more than the limit of {limit:,}{scope}; {TOO_LARGE}")


def check_exif(size: int, where: str) -> None:
    """Check the size of an EXIF block, in bytes."""
    if size > MAX_EXIF_BYTES:
        raise ImageError(
            f"{where}: {size:,} bytes of EXIF are more than the limit of {MAX_EXIF_BYTES:,}; remove the metadata"
        )


@contextmanager
def in_flight() -> Iterator[None]:
    """What this thread decodes inside is in flight until the end; before the first image it waits for room."""
    if hasattr(_thread, "held"):
        yield
        return
    _thread.held = 0
    try:
        yield
    finally:
        _budget.add(-_thread.held)
        del _thread.held


def reserve(height: int, width: int) -> None:
    """Called before an image of this size gets its pixels."""
    if not hasattr(_thread, "held"):
        return
    count = 3 * height * width
    # Whoever has something does not wait, so that no two wait for each other.
    (_budget.add if _thread.held else _budget.take)(count)
    _thread.held += count
