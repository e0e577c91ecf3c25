"""Images as Python programs have them: paths, folders, encoded bytes, arrays of pixels, PIL images."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.open_source import is_single_image, open_images
from facerts.datasets.source import Source
from facerts.errors import Error, ImageError
from facerts.images import MAX_BYTES, decode, pixels_problem, read
from facerts.images.pillow import from_pillow
from facerts.scoring.prepare import LazyImage

if TYPE_CHECKING:
    from PIL.Image import Image

BytesLike = bytes | bytearray | memoryview
Color: TypeAlias = Literal["RGB", "BGR", "rgb", "bgr"]
ImageInput: TypeAlias = "str | Path | bytes | bytearray | memoryview | BinaryIO | NDArray[np.uint8] | Image"
ImageInputs: TypeAlias = "ImageInput | Sequence[ImageInput] | Sequence[LazyImage] | Source"
# Channels that stand for three where an array has one or four: gray, or with alpha.
_CHANNELS = {(1,): [0, 0, 0], (4,): [0, 1, 2]}
# A PIL image is loaded when it is first used, which breaks if two threads do that to the same one.
_PIL_LOCKS = [Lock() for _ in range(61)]


def lazy_inputs(images: Any, color: Color = "RGB", *, by_content: bool = False) -> list[LazyImage]:
    """One or several images, loaded when they are needed; those without a path are named "image 0", "image 1", ….

    Args:
        images: a path, encoded bytes, a file that is open in binary mode, an ``(H, W, 3) uint8`` array (also gray,
            with one or no channel, or with alpha) or a PIL image; a sequence of these; or ``(N, H, W, 3) uint8``. The
            path of a folder, record directory, shard or list stands for all images in it; so does a ``Source``.
        color: order of the channels of arrays.
        by_content: name those without a path by the SHA-256 of their content instead, so that another call gives
            another image another name.
    """
    color = check_color(color)
    if isinstance(images, Source):
        return list(lazy_images(images))
    # An array of paths is several images; an array of pixels with up to three axes is one.
    pixels = isinstance(images, np.ndarray) and images.dtype.kind not in "OUS" and images.ndim < 4
    several = isinstance(images, Iterable) and not isinstance(images, Mapping | BytesLike | str)
    single = pixels or not several or is_pil(images) or _is_file(images)
    inputs = [_content(each) for each in ([images] if single else images)]
    names = (f"image {_content_sha256(each)[:16] if by_content else at}" for at, each in enumerate(inputs))
    return [image for each, name in zip(inputs, names, strict=True) for image in _expanded(each, name, color)]


def _expanded(image: Any, name: str, color: Color) -> Iterator[LazyImage]:
    if isinstance(image, LazyImage):
        yield image
    elif isinstance(image, str | Path) and not is_single_image(image):
        yield from lazy_images(open_images(image))
    else:
        yield lazy_input(image, name, color)


def _content_sha256(image: Any) -> str:
    data = image if isinstance(image, BytesLike) else image.tobytes() if hasattr(image, "tobytes") else b""
    return hashlib.sha256(data).hexdigest()


def lazy_images(source: Source, start: int = 0, stop: int | None = None) -> Iterator[LazyImage]:
    """The images of a source from index ``start`` up to ``stop``, in order."""

    def load(index: int) -> NDArray[np.uint8]:
        return decode(source.read(index), where=source.location(index))

    for index in range(start, len(source) if stop is None else stop):
        yield LazyImage(source.location(index), partial(load, index))


def check_color(color: Color) -> Color:
    """The order of channels in capitals; an unknown one is refused."""
    if color not in get_args(Color):
        raise Error(f"no color {color!r}; choose one of RGB, BGR")
    return "BGR" if color.upper() == "BGR" else "RGB"


def lazy_input(image: Any, name: str, color: Color = "RGB") -> LazyImage:
    """An image, loaded when it is needed."""
    color = check_color(color)
    if isinstance(image, str | Path):
        return LazyImage(str(image), partial(read, image))
    image = _content(image)
    # None is what cv2.imread returns for a file that it cannot read, which other images must not suffer from.
    if not (isinstance(image, BytesLike | np.ndarray | None) or is_pil(image)):
        kind = type(image).__name__
        raise Error(f"{name}: an image must be a path, bytes, an array or a PIL image, not {kind}")
    if isinstance(image, BytesLike):
        return LazyImage(name, partial(decode, bytes(image), where=name))
    if is_pil(image):
        return LazyImage(name, partial(_from_pil, image, name))
    return LazyImage(name, partial(_from_array, image, name, color))


def _content(image: Any) -> Any:
    """What an open file contains, as far as it may be an image; everything else as it is."""
    content = image.read(MAX_BYTES + 1) if _is_file(image) else image
    if content is not image and isinstance(content, str):
        raise Error("a file must be open in binary mode, not as text")
    return content


def _is_file(image: object) -> bool:
    return hasattr(image, "read") and not is_pil(image)


def is_pil(image: object) -> bool:
    """Whether an object is a PIL image; whoever has one has imported PIL."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(image, module.Image)


def _from_pil(image: Image, name: str) -> NDArray[np.uint8]:
    with _PIL_LOCKS[id(image) % len(_PIL_LOCKS)]:
        return from_pillow(image, name)


def _from_array(image: NDArray[np.uint8], name: str, color: Color) -> NDArray[np.uint8]:
    if image is None:
        raise ImageError(f"{name}: None is no image; cv2.imread returns it for a file that it cannot read")
    pixels = image[..., None] if image.ndim == 2 else image
    if pixels.shape[2:] in _CHANNELS:
        pixels = pixels[..., _CHANNELS[pixels.shape[2:]]]
    if pixels_problem(pixels):
        raise ImageError(f"{name}: an array must be (H, W, 3) uint8 {color}, not {pixels_problem(image)}")
    return np.ascontiguousarray(pixels if color == "RGB" else pixels[..., ::-1])
