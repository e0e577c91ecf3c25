"""Images as Python programs have them: paths, encoded bytes, arrays of pixels, PIL images."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from facerts.errors import Error, ImageError
from facerts.images import MAX_PIXELS, decode, read
from facerts.io.files import address_problem
from facerts.scoring.prepare import LazyImage

if TYPE_CHECKING:
    from PIL.Image import Image

# PIL's modes with 8 bits or less for each channel.
PIL_MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")

Color: TypeAlias = Literal["RGB", "BGR"]
ImageInput: TypeAlias = "str | Path | bytes | NDArray[np.uint8] | Image"


def lazy_inputs(images: Any, color: Color = "RGB") -> list[LazyImage]:
    """One or several images, loaded when they are needed; those without a path are named "image 0", "image 1", ….

    Args:
        images: a path, encoded bytes, an ``(H, W, 3) uint8`` array or a PIL image; a sequence of these; or
            ``(N, H, W, 3) uint8``.
        color: order of the channels of arrays.

    Raises:
        Error: there is no such order of channels.
    """
    if color not in get_args(Color):
        known = get_args(Color)
        raise Error(f"no color {color!r}; choose one of {', '.join(known)}")
    # An array of paths is several images; an array of pixels with up to three axes is one.
    pixels = isinstance(images, np.ndarray) and images.dtype.kind not in "OUS" and images.ndim < 4
    single = pixels or isinstance(images, str | Path | bytes) or is_pil(images)
    inputs: Sequence[Any] = [images] if single else images
    return [lazy_input(image, f"image {number}", color) for number, image in enumerate(inputs)]


def lazy_input(image: Any, name: str, color: Color = "RGB") -> LazyImage:
    """An image, loaded when it is needed."""
    if isinstance(image, str | Path):
        return LazyImage(str(image), partial(_from_path, image))
    if isinstance(image, bytes):
        return LazyImage(name, partial(decode, image, where=name))
    if is_pil(image):
        return LazyImage(name, partial(_from_pil, image, name))
    return LazyImage(name, partial(_from_array, image, name, color))


def is_pil(image: object) -> bool:
    """Whether an object is a PIL image; whoever has one has imported PIL."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(image, module.Image)


def pixels_problem(image: object) -> str:
    """What an object is if it is not an array of pixels, ``(H, W, 3) uint8``; empty if it is."""
    if not isinstance(image, np.ndarray):
        return type(image).__name__
    valid = image.ndim == 3 and image.shape[2] == 3 and image.dtype == np.uint8 and 0 not in image.shape
    return "" if valid else f"{image.shape} {image.dtype}"


def _from_path(path: str | Path) -> NDArray[np.uint8]:
    if problem := address_problem(path):
        raise ImageError(problem)
    return read(path)


def _from_pil(image: Image, name: str) -> NDArray[np.uint8]:
    """``(H, W, 3) uint8`` RGB, upright according to the image's EXIF orientation."""
    from PIL import ImageOps

    if image.mode not in PIL_MODES:
        raise ImageError(f"{name}: a PIL image of mode {image.mode}; convert it to RGB first")
    if image.width * image.height > MAX_PIXELS:
        raise ImageError(f"{name}: {image.width} x {image.height} pixels exceed the limit of {MAX_PIXELS:,}")
    try:
        return np.array(ImageOps.exif_transpose(image).convert("RGB"))
    # PIL reads the file only now.
    except (OSError, SyntaxError, ValueError) as error:
        raise ImageError(f"{name}: PIL cannot read it ({error})") from error


def _from_array(image: NDArray[np.uint8], name: str, color: Color) -> NDArray[np.uint8]:
    if not isinstance(image, np.ndarray):
        raise ImageError(
            f"{name}: an image must be a path, bytes, an array or a PIL image, not {type(image).__name__}"
        )
    if problem := pixels_problem(image):
        raise ImageError(f"{name}: an array must be (H, W, 3) uint8 {color}, not {problem}")
    return np.ascontiguousarray(image if color == "RGB" else image[..., ::-1])
