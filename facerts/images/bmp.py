"""BMP: checks the size in either kind of header."""

from __future__ import annotations

import struct

from facerts.errors import ImageError
from facerts.images.limits import CheckedImage, check_pixels

_START = struct.Struct("<2xI8xI")
_CORE_SIZE = struct.Struct("<HH")
_SIZE = struct.Struct("<ii")
_CORE_HEADER = 12
# Sizes of Windows' headers in all versions, and of the second version of OS/2's.
_HEADERS = frozenset({40, 52, 56, 64, 108, 124})


def check(data: bytes, where: str, max_pixels: int) -> CheckedImage:
    """Read a BMP's size."""
    if len(data) < 26:
        raise ImageError(f"{where}: the BMP is truncated")
    length, header = _START.unpack_from(data)
    if len(data) < length:
        raise ImageError(f"{where}: the BMP is truncated")
    if header == _CORE_HEADER:
        width, height = _CORE_SIZE.unpack_from(data, _START.size)
    elif header in _HEADERS:
        width, height = _SIZE.unpack_from(data, _START.size)
        # The height is negative if rows are stored from top to bottom.
        height = abs(height)
    else:
        raise ImageError(f"{where}: broken BMP, unknown header of {header} bytes")
    check_pixels(height, width, max_pixels, where)
    return CheckedImage(height, width, data)
