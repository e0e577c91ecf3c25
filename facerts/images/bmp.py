"""BMP: its two kinds of headers."""

from __future__ import annotations

import struct

from facerts.errors import ImageError
from facerts.images.limits import Checked, check_pixels

_START = struct.Struct("<2xI8xI")
_CORE_SIZE = struct.Struct("<HH")
_SIZE = struct.Struct("<ii")
_CORE_HEADER = 12
# Of Windows, in all its versions, and the second of OS/2.
_HEADERS = frozenset({40, 52, 56, 64, 108, 124})


def check(data: bytes, where: str, max_pixels: int) -> Checked:
    """Read a BMP's size.

    Raises:
        ImageError: broken, cut short, or beyond a limit.
    """
    if len(data) < 26:
        raise ImageError(f"{where}: the BMP is cut short")
    length, header = _START.unpack_from(data)
    if len(data) < length:
        raise ImageError(f"{where}: the BMP is cut short")
    if header == _CORE_HEADER:
        width, height = _CORE_SIZE.unpack_from(data, _START.size)
    elif header in _HEADERS:
        width, height = _SIZE.unpack_from(data, _START.size)
        # Negative where the rows come from the top.
        height = abs(height)
    else:
        raise ImageError(f"{where}: broken BMP, it has a header of {header} bytes")
    check_pixels(height, width, max_pixels, where)
    return Checked(height, width, data)
