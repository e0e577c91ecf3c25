"""One image to the crops of its faces, or to the reason why there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.detection import Detection, Detector
from facerts.errors import Error, ImageError
from facerts.images import CROP_SIZE, as_crop
from facerts.images.align import align
from facerts.scoring.reasons import crop_reasons, detection_reasons


@dataclass(frozen=True)
class LazyImage:
    """An image that has not been loaded yet.

    Attributes:
        path: the name of the image in rows.
        load: returns ``(H, W, 3) uint8`` RGB or raises ``Error``; called in a worker thread.
    """

    path: str
    load: Callable[[], NDArray[np.uint8]]


@dataclass(frozen=True)
class PreparedImage:
    """The crops of one image, or its error.

    Attributes:
        path: the name of the image in rows; bytes of a file name that are not valid text are escaped as ``\\udcff``.
        crops: ``(112, 112, 3) uint8`` RGB, one per face.
        detections: one per crop; None if the image is itself a crop.
        reasons: one per crop; what makes the face poor according to its crop and detection.
        error: why the image could not be loaded.
    """

    path: str
    crops: list[NDArray[np.uint8]]
    detections: list[Detection | None]
    reasons: list[tuple[str, ...]]
    error: str | None = None


def prepare(
    image: LazyImage, detector: Detector | None, *, largest: bool = False, resize_crops: bool = False
) -> PreparedImage:
    """Load an image and crop its faces.

    Args:
        image: a photo if there is a detector, otherwise an aligned crop.
        detector: finds the faces in photos; None for aligned crops.
        largest: keep only the largest face.
        resize_crops: accept square crops of any size, not just 112 x 112.
    """
    path = printable(image.path)
    try:
        pixels = image.load()
        if detector is None:
            if not resize_crops:
                _check_size(pixels, path)
            crop = as_crop(pixels, where=path)
            return PreparedImage(path, [crop], [None], [crop_reasons(crop)])
        faces = detector(pixels)[: 1 if largest else None]
        crops = [align(pixels, face.points) for face in faces]
        reasons = [
            detection_reasons(face, *pixels.shape[:2]) + crop_reasons(crop)
            for face, crop in zip(faces, crops, strict=True)
        ]
        return PreparedImage(path, crops, [*faces], reasons)
    except Error as error:
        return PreparedImage(path, [], [], [], printable(str(error)))


def _check_size(image: NDArray[np.uint8], where: str) -> None:
    """Refuse an image that may be a photo, which would silently score as a very poor crop.

    Raises:
        ImageError: the image does not have the size of an aligned crop.
    """
    height, width = image.shape[:2]
    if (height, width) != (CROP_SIZE, CROP_SIZE):
        raise ImageError(
            f"{where}: {width} x {height} pixels are not an aligned crop of {CROP_SIZE} x {CROP_SIZE}; photos need a "
            "detector (--detector), aligned crops of another size need --resize-crops (resize_crops in Python and HTTP)"
        )


def printable(text: str) -> str:
    """Text that every file format can store: undecodable bytes of file names and NUL characters are escaped."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
