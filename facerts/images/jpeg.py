"""JPEG: a walk over the segments that reads them the way libjpeg does.

It is done here, because OpenCV offers no look at a file before it decodes all of its scans, and no limit on the work.
"""

from __future__ import annotations

import re
import struct
from random import Random

from facerts.errors import ImageError
from facerts.images.limits import (
    MAX_JPEG_SCAN_SAMPLES,
    MAX_JPEG_SCANS,
    MAX_JPEG_SEGMENTS,
    CheckedImage,
    check_pixels,
)

_SEGMENT = struct.Struct(">BBH")
_FRAME = struct.Struct(">xHHB")
# Huffman and quantization tables, restart intervals, application data, comments. Markers that are not listed here have
# no length, or libjpeg refuses them.
_SKIPPED = frozenset({0xC4, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE})
# Baseline, extended and progressive with Huffman codes: all that cameras and programs write. The others are lossless,
# which is another format under the same name, or have arithmetic codes, whose decoder works on when the data has ended.
_FRAMES = frozenset({0xC0, 0xC1, 0xC2})
_OTHER_FRAMES = frozenset({0xC3, *range(0xC5, 0xD0)})
_PROGRESSIVE, _SCAN, _END, _PADDING = 0xC2, 0xDA, 0xD9, 0xFF
_END_MARKER = b"\xff\xd9"
# In a scan 0xFF is followed by 0x00, a restart marker or padding; anything else ends the scan.
_END_OF_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_NOT_PADDING = re.compile(rb"[^\xff]")
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_ZEROS = bytes(16)
_NOISE = Random(0).randbytes(256).replace(b"\xff", b"")
_BLOCK = 8


def check(data: bytes, where: str, max_pixels: int) -> CheckedImage:
    """Walk a JPEG to its end marker.

    libjpeg fills the missing part of a truncated file with gray and goes on, so truncation is detected here, where only
    the marker may be missing by ``other_end``.
    """
    frame = b""
    scans: list[bytes] = []
    height = width = kind = begin = 0
    is_cut = False
    position, last = 2, len(data) - _SEGMENT.size
    for _ in range(MAX_JPEG_SEGMENTS):
        if position > last:
            break
        prefix, marker, length = _SEGMENT.unpack_from(data, position)
        if prefix != 0xFF:
            raise _broken(where, position)
        if marker in _SKIPPED and length >= 2:
            position += 2 + length
            continue
        if marker == _END:
            break
        if marker == _PADDING:
            padding = _NOT_PADDING.search(data, position)
            position = len(data) if padding is None else padding.start() - 1
            continue
        if marker in _OTHER_FRAMES:
            raise ImageError(
                f"{where}: the JPEG is neither baseline nor progressive (marker FF{marker:02X}); "
                "save it as a baseline JPEG"
            )
        content = data[position + _SEGMENT.size : position + 2 + length]
        if marker in _FRAMES and len(content) > _FRAME.size:
            if frame:
                raise ImageError(f"{where}: broken JPEG, a second frame header at byte {position}")
            kind, frame = marker, content
            height, width, _ = _FRAME.unpack_from(frame)
            check_pixels(height, width, max_pixels, where)
            position += 2 + length
        elif marker == _SCAN and frame and content:
            scans.append(content)
            if len(scans) > MAX_JPEG_SCANS:
                raise ImageError(f"{where}: the JPEG has more than {MAX_JPEG_SCANS} scans")
            begin = position + 2 + length
            end = _END_OF_SCAN.search(data, begin)
            is_cut = end is None
            position = len(data) if end is None else end.start()
        else:
            raise _broken(where, position)
    else:
        raise ImageError(f"{where}: the JPEG has more than {MAX_JPEG_SEGMENTS:,} segments")
    # Nothing else may be missing if the only scan has all components; zeros are what broken transfers leave.
    complete = kind != _PROGRESSIVE and [scan[:1] for scan in scans] == [frame[_FRAME.size - 1 : _FRAME.size]]
    if is_cut and complete and not data.endswith(_ZEROS):
        return CheckedImage(height, width, *_ends(data, begin))
    if not scans or not data.startswith(_END_MARKER, position):
        raise ImageError(f"{where}: the JPEG is truncated")
    if len(scans) > 1:
        _check_work(frame, scans, where)
    return CheckedImage(height, width, data)


def _ends(data: bytes, begin: int) -> tuple[bytes, bytes]:
    """A file with a scan from a byte on that does not end: with an end, and with noise before it."""
    # The first byte of a marker would make one of the noise.
    data = data.rstrip(b"\xff")
    # Behind a whole interval, libjpeg ignores all bytes up to the next restart marker.
    last = [b"\xff\xd7", *_RESTART.findall(data, begin)][-1]
    following = bytes((0xFF, 0xD0 | (last[1] + 1) % 8))
    return data + _END_MARKER, data + _NOISE + following + _NOISE + _END_MARKER


def _check_work(frame: bytes, scans: list[bytes], where: str) -> None:
    """Refuse scans that together cover too many samples, counting a component each time a scan lists it."""
    samples = _samples(frame)
    try:
        work = sum(samples[number] for scan in scans for number in scan[1 : 1 + 2 * scan[0] : 2])
    except KeyError as error:
        raise ImageError(f"{where}: broken JPEG, a scan lists component {error}, which does not exist") from error
    if work > MAX_JPEG_SCAN_SAMPLES:
        raise ImageError(
            f"{where}: the JPEG's scans have {work:,} samples, more than the limit of "
            f"{MAX_JPEG_SCAN_SAMPLES:,}; save it smaller or as a baseline JPEG"
        )


def _samples(frame: bytes) -> dict[int, int]:
    """Number of samples of each component, in whole blocks."""
    height, width, _ = _FRAME.unpack_from(frame)
    listed = zip(frame[_FRAME.size :: 3], frame[_FRAME.size + 1 :: 3], strict=False)
    components = [(number, factors >> 4, factors & 15) for number, factors in listed]
    across = _BLOCK * max([1, *(horizontal for _, horizontal, _ in components)])
    down = _BLOCK * max([1, *(vertical for _, _, vertical in components)])
    units = -(-width // across) * -(-height // down)
    samples: dict[int, int] = {}
    for number, horizontal, vertical in components:
        # Some files give two components the same number; count the larger one, whichever a scan means.
        own = units * horizontal * vertical * _BLOCK * _BLOCK
        samples[number] = max(own, samples.get(number, 0))
    return samples


def _broken(where: str, position: int) -> ImageError:
    return ImageError(f"{where}: broken JPEG at byte {position}")
