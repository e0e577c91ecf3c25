"""What an image file may be, so that decoding a hostile one costs seconds and never more than 1 GB.

A file of less than 1 MB that keeps all limits takes at most about two seconds of a core and 750 MB. docs/scoring.md
has the limits as a table.
"""

from __future__ import annotations

from typing import NamedTuple

from facerts.errors import ImageError

# No image that is worth decoding is larger; what is would only fill the memory.
MAX_BYTES = 256 << 20
MAX_PIXELS = 64_000_000
# OpenCV copies what each of up to 65,535 entries points to; a JPEG's EXIF is never larger than this.
MAX_EXIF_BYTES = (1 << 16) - 1
# Encoders write up to about twenty scans. However few bytes a scan has, it costs a pass over its samples, so their sum
# is limited too: sixteen passes over one component of the largest image.
MAX_JPEG_SCANS = 100
MAX_JPEG_SCAN_SAMPLES = 16 * MAX_PIXELS
# Profiles and depth maps come in segments of 64 KB.
MAX_JPEG_SEGMENTS = 10_000
# 300 KB can be Huffman codes for 400 MB of tables, beside 11 bytes for each pixel.
MAX_LOSSLESS_WEBP_PIXELS = 25_000_000


class Checked(NamedTuple):
    """An image file that keeps the limits.

    Attributes:
        height: in pixels, as its header says, before EXIF orientation is applied.
        width: likewise.
        data: what the decoder is given: pixels and orientation.
    """

    height: int
    width: int
    data: bytes


def check_pixels(height: int, width: int, limit: int, where: str, *, of: str = "") -> None:
    """Refuse a size that a header claims.

    Args:
        height: in pixels.
        width: in pixels.
        limit: most pixels.
        where: names the image in errors.
        of: what the limit is for, where it is not for every image.

    Raises:
        ImageError: no pixels, or too many.
    """
    if height < 1 or width < 1:
        raise ImageError(f"{where}: its header claims {width} x {height} pixels")
    if height * width > limit:
        raise ImageError(f"{where}: {width} x {height} pixels are more than the limit of {limit:,}{of}")


def check_exif(size: int, where: str) -> None:
    """Refuse an EXIF block by its bytes.

    Raises:
        ImageError: too many.
    """
    if size > MAX_EXIF_BYTES:
        raise ImageError(
            f"{where}: {size:,} bytes of EXIF are more than the limit of {MAX_EXIF_BYTES:,}; remove its metadata"
        )
