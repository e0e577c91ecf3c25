"""PNG: a walk over the chunks that keeps those needed for pixels and orientation.

Text and color profiles, which can inflate to 8 MB each, and the later frames of an animation are stripped.
"""

from __future__ import annotations

import struct
import zlib

from facerts.errors import ImageError
from facerts.images.limits import CheckedImage, check_exif, check_pixels

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHUNK = struct.Struct(">I4s")
_OVERHEAD = 12  # length, type and checksum of a chunk
_HEADER_CHUNK = struct.pack(">I4s", 13, b"IHDR")
_HEADER = struct.Struct(">IIBB")
_FIRST = len(SIGNATURE) + _OVERHEAD + 13
_AT_MOST_ONCE = frozenset({b"PLTE", b"tRNS", b"eXIf"})
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = frozenset({1, 2, 4, 8, 16})
# libpng may inflate this many bytes of compressed pixels unchecked; checking takes half as long as decoding.
_UNCHECKED = 4 << 20
_PART = 1 << 16


def check(data: bytes, where: str, max_pixels: int) -> CheckedImage:
    """Walk a PNG to its end chunk."""
    if len(data) < _FIRST:
        raise ImageError(f"{where}: the PNG is truncated")
    if not data.startswith(_HEADER_CHUNK, len(SIGNATURE)):
        raise ImageError(f"{where}: broken PNG, it does not begin with an IHDR chunk")
    width, height, depth, color = _HEADER.unpack_from(data, len(SIGNATURE) + _CHUNK.size)
    check_pixels(height, width, max_pixels, where)
    if color not in _CHANNELS or depth not in _DEPTHS:
        raise ImageError(f"{where}: broken PNG, invalid color type {color} or bit depth {depth}")
    kept = [(0, _FIRST)]
    seen: set[bytes] = set()
    first_pixels = last_pixels = 0
    position, kind = _FIRST, b""
    while kind != b"IEND":
        if position + _OVERHEAD > len(data):
            raise ImageError(f"{where}: the PNG is truncated")
        length, kind = _CHUNK.unpack_from(data, position)
        end = position + _OVERHEAD + length
        if end > len(data):
            raise ImageError(f"{where}: the PNG is truncated")
        if kind == b"IDAT":
            first_pixels = first_pixels or position
            if last_pixels not in {0, position}:
                raise _broken(where, kind, position)
            last_pixels = end
        elif kind in _AT_MOST_ONCE:
            if kind in seen:
                raise _broken(where, kind, position)
            seen.add(kind)
            if kind == b"eXIf":
                check_exif(length, where)
        elif kind != b"IEND":
            # A lowercase first letter marks an ancillary chunk, which decoders may ignore.
            if not kind[:1].islower():
                raise _broken(where, kind, position)
            position = end
            continue
        if kept[-1][1] == position:
            kept[-1] = kept[-1][0], end
        else:
            kept.append((position, end))
        position = end
    if last_pixels - first_pixels > _UNCHECKED:
        row = (width * depth * _CHANNELS[color] + 7) // 8
        # Interlacing splits a row into up to two, each with two more bytes for the filter type and padding.
        _check_inflated(data, first_pixels, last_pixels, height * (row + 4) + _PART, where)
    return CheckedImage(height, width, b"".join([data[start:end] for start, end in kept]))


def _check_inflated(data: bytes, position: int, end: int, limit: int, where: str) -> None:
    """Refuse data beyond the pixels: libpng would inflate it all, up to a thousandfold, and discard it."""
    stream = zlib.decompressobj()
    view = memoryview(data)
    while position < end:
        length, _ = _CHUNK.unpack_from(data, position)
        start = position + _CHUNK.size
        for at in range(start, start + length, _PART):
            part: bytes | memoryview = view[at : min(at + _PART, start + length)]
            while part and not stream.eof:
                try:
                    limit -= len(stream.decompress(part, 16 * _PART))
                except zlib.error as error:
                    raise ImageError(f"{where}: broken PNG ({error})") from error
                if limit < 0:
                    raise ImageError(f"{where}: broken PNG, it has more data than pixels")
                part = stream.unconsumed_tail
        position += _OVERHEAD + length


def _broken(where: str, kind: bytes, position: int) -> ImageError:
    return ImageError(f"{where}: broken PNG, chunk {kind.decode('latin-1')!r} at byte {position}")
