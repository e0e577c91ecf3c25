"""Pillow's images to RGB arrays: those of programs, and files of formats that only Pillow reads.

Pillow is not required; the extra ``formats`` installs it with pillow-heif. Its decoders are not walked beforehand as
``facerts.images.decoding`` does with those of OpenCV; only the number of pixels is limited.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from facerts.errors import ImageError, first_line, install_hint
from facerts.images.limits import MAX_PIXELS, TOO_LARGE, check_pixels, reserve

if TYPE_CHECKING:
    from PIL.Image import Image

# Pillow's modes with 8 bits or less for each channel.
MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")
# The upper 8 bits of these are kept.
MODES_OF_16_BITS = ("I;16", "I;16B", "I;16L", "I;16N")
_PILLOW_NAMES = {"HEIC": "HEIF"}


def decode_with_pillow(data: bytes, known: str, *, where: str, max_pixels: int) -> NDArray[np.uint8]:
    """Decode an image of a format that only Pillow reads, of several pages or frames the first, to upright RGB."""
    try:
        import PIL.Image

        if known == "HEIC":
            import pillow_heif

            pillow_heif.register_heif_opener()
    except ImportError as error:
        raise ImageError(
            f"{where}: {known} is read with Pillow ({install_hint('use')}); or convert it to JPEG"
        ) from error
    try:
        image = PIL.Image.open(BytesIO(data), formats=[_PILLOW_NAMES.get(known, known)])
    except PIL.Image.DecompressionBombError as error:
        raise ImageError(f"{where}: {first_line(error)}; {TOO_LARGE}") from error
    # Pillow does not say what its decoders raise for broken files.
    except Exception as error:
        problem = first_line(error).partition(" <")[0]  # an address in memory
        raise ImageError(f"{where}: broken {known}, Pillow cannot read it ({problem})") from error
    with image:
        return from_pillow(image, where, max_pixels)


def from_pillow(image: Image, where: str, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """``(H, W, 3) uint8`` RGB, upright according to the image's EXIF orientation."""
    from PIL import ImageOps

    if image.mode not in MODES + MODES_OF_16_BITS:
        raise ImageError(f"{where}: a PIL image of mode {image.mode}; convert it to RGB first")
    check_pixels(image.height, image.width, max_pixels, where)
    reserve(image.height, image.width)
    # Pillow reads the file only now, and does not say what its decoders raise for broken ones.
    try:
        upright = ImageOps.exif_transpose(image)
        if image.mode in MODES_OF_16_BITS:
            gray = (np.asarray(upright).astype(np.uint16) >> 8).astype(np.uint8)
            return np.repeat(gray[..., None], 3, axis=2)
        return np.array(upright.convert("RGB"))
    except Exception as error:
        raise ImageError(f"{where}: PIL cannot read it ({first_line(error)})") from error
