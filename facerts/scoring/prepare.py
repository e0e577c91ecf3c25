"""A picture to the crops of its faces, or to the reason why there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.detection import Detection, Detector
from facerts.errors import Error, ImageError
from facerts.images import CROP_SIZE, as_crop
from facerts.images.align import align


@dataclass(frozen=True)
class Picture:
    """A picture that is not loaded yet.

    Attributes:
        path: its name in rows.
        load: gives ``(H, W, 3) uint8`` RGB, or raises ``Error``; called in a thread.
    """

    path: str
    load: Callable[[], NDArray[np.uint8]]


@dataclass(frozen=True)
class Prepared:
    """A picture's faces, or its error.

    Attributes:
        path: its name in rows; what of a file's name is no text is written as ``\\udcff``.
        crops: ``(112, 112, 3) uint8`` RGB, one for each face.
        detections: theirs; None where the picture is itself a crop.
        error: why it could not be loaded.
    """

    path: str
    crops: list[NDArray[np.uint8]]
    detections: list[Detection | None]
    error: str | None = None


def prepare(
    picture: Picture, detector: Detector | None, *, largest: bool = False, resize_crops: bool = False
) -> Prepared:
    """Load a picture and cut out its faces.

    Args:
        picture: an aligned crop, or a photo where there is a detector.
        detector: finds the faces; None where the picture is a crop.
        largest: of several faces take the largest alone.
        resize_crops: squares of any size are aligned crops; otherwise those of 112 x 112 alone.
    """
    path = printable(picture.path)
    try:
        image = picture.load()
        if detector is None:
            if not resize_crops:
                _check_size(image, path)
            return Prepared(path, [as_crop(image, where=path)], [None])
        faces = detector(image)[: 1 if largest else None]
        return Prepared(path, [align(image, face.points) for face in faces], [*faces])
    except Error as error:
        return Prepared(path, [], [], printable(str(error)))


def _check_size(image: NDArray[np.uint8], where: str) -> None:
    """A photo would be scored without a word as a very poor crop.

    Raises:
        ImageError: the picture has not the size of aligned crops.
    """
    height, width = image.shape[:2]
    if (height, width) != (CROP_SIZE, CROP_SIZE):
        raise ImageError(
            f"{where}: {width} x {height} pixels are not an aligned crop of {CROP_SIZE} x {CROP_SIZE}; photos need a "
            "detector (--detector), aligned crops of another size need --resize-crops (resize_crops in Python and HTTP)"
        )


def printable(text: str) -> str:
    """Text that every file can hold: names may have bytes that are no characters, and lists the one that ends text."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
