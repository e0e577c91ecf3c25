"""Bytes or a file to an RGB array: the only decoder.

OpenCV decodes; this module makes every picture the same thing, 8-bit RGB the right way up, and refuses what
is no picture, is cut short, or is unreasonably large, before its pixels are allocated.

What is read: JPEG, PNG, WebP and BMP. Grey becomes three equal channels, 16 bits become the upper 8, CMYK is
converted, an alpha channel is dropped (the colours under it stay as stored), and EXIF orientation is applied.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.errors import ImageError

CROP_SIZE = 112
MAX_PIXELS = 64_000_000

# OpenCV 4.11 learned to decode straight to RGB; before, the channels are swapped afterwards.
_DECODES_TO_RGB: int | None = getattr(cv2, "IMREAD_COLOR_RGB", None)
_SEGMENT = struct.Struct(">BBH")
_FRAME_SIZE = struct.Struct(">HH")
_FRAME_HEADERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# In a JPEG's scan 0xFF is followed by 0x00, a restart marker or padding; anything else ends the scan.
_END_OF_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_NOT_PADDING = re.compile(rb"[^\xff]")
# A progressive JPEG has about ten scans; each costs a pass over all pixels, so thousands in a small file are an attack.
_MOST_SCANS = 100


def decode(data: bytes, *, where: str, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """Decode a picture.

    Args:
        data: the encoded bytes.
        where: names the picture in errors: its path, or record and file.
        max_pixels: larger pictures are refused, by their header.

    Returns:
        ``(H, W, 3) uint8`` RGB, upright.

    Raises:
        ImageError: empty, of an unknown format, broken, cut short, or too large.
    """
    if not data:
        raise ImageError(f"{where}: the file is empty")
    height, width = _size(data, where)
    if height * width > max_pixels:
        raise ImageError(f"{where}: {width} x {height} pixels are more than the limit of {max_pixels:,}")
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), _DECODES_TO_RGB or cv2.IMREAD_COLOR)
    except cv2.error as error:
        raise ImageError(f"{where}: broken picture ({error.err})") from error
    if image is None:
        raise ImageError(f"{where}: broken picture, it cannot be decoded")
    if _DECODES_TO_RGB is None:
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
    return image.astype(np.uint8, copy=False)


def decode_crop(data: bytes, *, where: str) -> NDArray[np.uint8]:
    """Decode an aligned crop to ``(112, 112, 3) uint8`` RGB; squares of other sizes are resized.

    Raises:
        ImageError: as ``decode``, or the picture is not square, so that it cannot be an aligned crop.
    """
    return as_crop(decode(data, where=where), where=where)


def as_crop(image: NDArray[np.uint8], *, where: str) -> NDArray[np.uint8]:
    """A decoded picture as an aligned crop; see ``decode_crop``."""
    height, width = image.shape[:2]
    if height != width:
        raise ImageError(
            f"{where}: {width} x {height} pixels are not an aligned crop, which is square; "
            "photos need a detector"
        )
    return fit_crop(image)


def fit_crop(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Resize an aligned RGB crop of another size to ``(112, 112, 3)``."""
    if image.shape[:2] == (CROP_SIZE, CROP_SIZE):
        return image
    shrinks = min(image.shape[:2]) > CROP_SIZE
    method = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return cv2.resize(image, (CROP_SIZE, CROP_SIZE), interpolation=method).astype(np.uint8, copy=False)


def read(path: str | Path, *, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """Decode a file; see ``decode``."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ImageError(f"{path}: cannot be read ({error.strerror})") from error
    return decode(data, where=str(path), max_pixels=max_pixels)


def encode_jpeg(image: NDArray[np.uint8], quality: int = 95) -> bytes:
    """``(H, W, 3) uint8`` RGB to JPEG bytes."""
    _, data = cv2.imencode(
        ".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality]
    )
    return bytes(data)


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """``(H, W, 3) uint8`` RGB to PNG bytes, which lose nothing."""
    _, data = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    return bytes(data)


def _size(data: bytes, where: str) -> tuple[int, int]:
    """Height and width from the header, after checking that the file is whole as far as headers tell."""
    if data[:2] == b"\xff\xd8":
        return _jpeg_size(data, where)
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        if len(data) < 24 or data.find(b"IEND", 24) < 0:
            raise ImageError(f"{where}: the PNG is cut short")
        return int.from_bytes(data[20:24], "big"), int.from_bytes(data[16:20], "big")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp_size(data, where)
    if data[:2] == b"BM":
        if len(data) < 26 or len(data) < int.from_bytes(data[2:6], "little"):
            raise ImageError(f"{where}: the BMP is cut short")
        height = int.from_bytes(data[22:26], "little", signed=True)
        return abs(height), int.from_bytes(data[18:22], "little", signed=True)
    raise ImageError(f"{where}: not a JPEG, PNG, WebP or BMP picture")


def _jpeg_size(data: bytes, where: str) -> tuple[int, int]:
    """Walk the segments to the frame header and on to the end marker.

    libjpeg fills what is missing of a truncated file with grey and goes on, so the end is looked for here.
    """
    size: tuple[int, int] | None = None
    position, scans = 2, 0
    last = len(data) - 4
    while position <= last:
        prefix, marker, length = _SEGMENT.unpack_from(data, position)
        if prefix != 0xFF:
            raise ImageError(f"{where}: broken JPEG at byte {position}")
        if marker == 0xFF:
            padding = _NOT_PADDING.search(data, position)
            position = last + 1 if padding is None else padding.start() - 1
            continue
        if marker in _FRAME_HEADERS and position + 9 <= len(data):
            size = _FRAME_SIZE.unpack_from(data, position + 5)
        position += 2 + length
        if marker == 0xDA:
            scans += 1
            if scans > _MOST_SCANS:
                raise ImageError(f"{where}: the JPEG has more than {_MOST_SCANS} scans")
            end = _END_OF_SCAN.search(data, position)
            if end is None:
                break
            position = end.start()
            if data[position + 1] == 0xD9:
                if size is None:
                    break
                return size
    raise ImageError(f"{where}: the JPEG is cut short")


def _webp_size(data: bytes, where: str) -> tuple[int, int]:
    if len(data) < 30 or len(data) < 8 + int.from_bytes(data[4:8], "little"):
        raise ImageError(f"{where}: the WebP is cut short")
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[27:30], "little"), 1 + int.from_bytes(data[24:27], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits >> 14 & 0x3FFF), 1 + (bits & 0x3FFF)
    if kind == b"VP8 ":
        return (
            int.from_bytes(data[28:30], "little") & 0x3FFF,
            int.from_bytes(data[26:28], "little") & 0x3FFF,
        )
    raise ImageError(f"{where}: broken WebP")
