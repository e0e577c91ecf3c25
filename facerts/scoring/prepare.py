"""One image to the crops of its faces, or to the reason why there are none."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.detection import Detection, FaceFinder
from facerts.errors import Error
from facerts.images import as_crop, in_flight
from facerts.images.align import align
from facerts.onnx.session import ProviderError
from facerts.scoring.reasons import crop_reasons, detection_reasons

# How ``storable`` writes a byte of a file's name that is not valid text.
_ESCAPED_BYTE = re.compile(r"\\udc([89a-f][0-9a-f])")


@dataclass(frozen=True)
class LazyImage:
    """An image that has not been loaded yet.

    Attributes:
        load: returns ``(H, W, 3) uint8`` RGB or raises ``Error``; called in a worker thread.
        nbytes: bytes of the pixels that it keeps in memory until then.
    """

    path: str
    load: Callable[[], NDArray[np.uint8]]
    nbytes: int = 0


@dataclass(frozen=True)
class PreparedImage:
    """The crops of one image, or its error.

    Attributes:
        path: the name of the image in rows; bytes of a file name that are not valid text are escaped as ``\\udcff``.
        crops: ``(112, 112, 3) uint8`` RGB, one per face.
        detections: one per crop; None if the image is itself a crop.
        reasons: one per crop; what makes the face poor according to its crop and detection.
        found: number of faces in the image, including those beyond the maximum that was wanted.
        smaller: number of them that are smaller than the minimum; None without a minimum.
        size: height and width of the image in pixels; None if it could not be loaded.
    """

    path: str
    crops: list[NDArray[np.uint8]]
    detections: list[Detection | None]
    reasons: list[tuple[str, ...]]
    error: str | None = None
    found: int = 0
    smaller: int | None = None
    size: tuple[int, int] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its crops."""
        return sum(crop.nbytes for crop in self.crops)


@in_flight()
def prepare(
    image: LazyImage, detector: FaceFinder | None, *, max_faces: int | None = None, min_face_size: float = 0
) -> PreparedImage:
    """Load an image and crop its faces, or its ``max_faces`` largest ones.

    Args:
        min_face_size: leave out the faces of photos whose box has a side below this number of pixels.

    Raises:
        ProviderError: the detector's provider does not start.
    """
    path, size = storable(image.path), None
    try:
        pixels = image.load()
        size = pixels.shape[0], pixels.shape[1]
        detections = None if detector is None else detector(pixels)
        if detections is None:
            crop = as_crop(pixels, where=path)
            return PreparedImage(path, [crop], [None], [crop_reasons(crop)], found=1, size=size)
        large = [face for face in detections if not min_face_size or min(face.sides) >= min_face_size]
        faces = large[:max_faces]
        crops = [align(pixels, face.points) for face in faces]
        reasons = [detection_reasons(face, *size) + crop_reasons(crop) for face, crop in zip(faces, crops, strict=True)]
        smaller = len(detections) - len(large) if min_face_size else None
        return PreparedImage(path, crops, [*faces], reasons, found=len(detections), smaller=smaller, size=size)
    except ProviderError:
        # Not the image's fault, and all others would wait for the same detector.
        raise
    except Error as error:
        return PreparedImage(path, [], [], [], storable(str(error)), size=size)


def storable(text: str) -> str:
    """Text that every file format can store: undecodable bytes of file names and NUL characters are escaped."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def stored_file(text: str) -> Path:
    """The file whose name is stored as such text, see ``storable``; one of exactly this name comes first."""
    path = Path(text)
    if os.path.lexists(path):
        return path
    return Path(_ESCAPED_BYTE.sub(lambda escaped: chr(0xDC00 + int(escaped[1], 16)), text))
