"""WebP: a walk over the chunks that keeps the image and its orientation.

The alpha channel of lossy images, which would be dropped anyway, color profiles and text are stripped.
"""

from __future__ import annotations

import struct

from facerts.errors import ImageError
from facerts.images.limits import MAX_LOSSLESS_WEBP_PIXELS, CheckedImage, check_exif, check_pixels

_CHUNK = struct.Struct("<4sI")
_FIRST = 12  # after RIFF, its size, and WEBP
_CANVAS, _LOSSY, _LOSSLESS, _EXIF, _FRAME = b"VP8X", b"VP8 ", b"VP8L", b"EXIF", b"ANMF"
_IMAGES = frozenset({_LOSSY, _LOSSLESS})
_HAS_EXIF = 0x08
_FRAME_HEADER = 16  # where and how long the frame is shown
_SIDES = struct.Struct("<HH")
_SIDE = (1 << 14) - 1


def check(data: bytes, where: str, max_pixels: int) -> CheckedImage:
    """Walk a WebP's chunks."""
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise ImageError(f"{where}: the WebP is truncated")
    kind, content, position = _read(data, _FIRST, end, where)
    canvas = exif = b""
    if kind == _CANVAS:
        canvas = content
        still = True
        while position < end:
            start = position
            other, payload, position = _read(data, position, end, where)
            if other == _FRAME and kind == _CANVAS:
                # The chunks of the first frame are walked as if they were the file's.
                still, position = False, start + _CHUNK.size + _FRAME_HEADER
            elif other in _IMAGES and kind == _CANVAS:
                kind, content = other, payload
            elif other == _EXIF and not exif:
                # Some programs write what precedes it in a JPEG.
                exif = payload.removeprefix(b"Exif\0\0")
    if kind not in _IMAGES:
        raise ImageError(f"{where}: broken WebP, it contains no image")
    height, width = _size(kind, content, where)
    check_pixels(height, width, max_pixels, where)
    if kind == _LOSSLESS:
        check_pixels(height, width, MAX_LOSSLESS_WEBP_PIXELS, where, scope=" for lossless WebP")
    chunks = _chunk(kind, content)
    if canvas:
        sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        if still and canvas[4:] != sides:
            raise ImageError(f"{where}: broken WebP, its image and canvas differ in size")
        check_exif(len(exif), where)
        chunks = _chunk(_CANVAS, bytes([_HAS_EXIF if exif else 0, 0, 0, 0]) + sides) + chunks
        if exif:
            chunks += _chunk(_EXIF, exif)
    return CheckedImage(height, width, _chunk(b"RIFF", b"WEBP" + chunks))


def _read(data: bytes, position: int, end: int, where: str) -> tuple[bytes, bytes, int]:
    """A chunk's kind and content, and the position of the next chunk."""
    start = position + _CHUNK.size
    if start <= end:
        kind, length = _CHUNK.unpack_from(data, position)
        if start + length <= end:
            return kind, data[start : start + length], start + length + length % 2
    raise ImageError(f"{where}: the WebP is truncated")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return _CHUNK.pack(kind, len(content)) + content + bytes(len(content) % 2)


def _size(kind: bytes, content: bytes, where: str) -> tuple[int, int]:
    """Height and width from the image's own header."""
    if kind == _LOSSY and content[3:6] == b"\x9d\x01\x2a" and len(content) >= 10:
        width, height = _SIDES.unpack_from(content, 6)
        return height & _SIDE, width & _SIDE
    if kind == _LOSSLESS and content[:1] == b"\x2f" and len(content) >= 5:
        bits = int.from_bytes(content[1:5], "little")
        return 1 + (bits >> 14 & _SIDE), 1 + (bits & _SIDE)
    raise ImageError(f"{where}: broken WebP, its image has no header")
