"""Photos in place of crops: benchmarks as they are handed out, aligned as they are read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Joined, Source, Subset
from facerts.detection.base import Detection, Detector
from facerts.errors import Error
from facerts.images import CROP_SIZE, decode, fit_crop
from facerts.images.align import align

# What takes pictures for crops, whatever their size.
_READ_AS_CROPS = (Source.crop, Subset.crop, Joined.crop)


class AlignedPhotos(Source):
    """A source of photos as one of crops: the face that a photo is about is found and aligned.

    That is the largest, less twice the square of its distance from the middle, so that people in the background do
    not count. Where no face is found, the middle of the photo is taken.

    Args:
        photos: the source.
        detector: that finds the faces.
    """

    def __init__(self, photos: Source, detector: Detector) -> None:
        self.name, self.labels, self.identities = photos.name, photos.labels, photos.identities
        self._photos = photos
        self._detector = detector
        self._faces: dict[int, Detection | None] = {}

    def __len__(self) -> int:
        return len(self._photos)

    def key(self, index: int) -> str:
        return self._photos.key(index)

    def location(self, index: int) -> str:
        return self._photos.location(index)

    def read(self, index: int) -> bytes:
        return self._photos.read(index)

    def crop(self, index: int) -> NDArray[np.uint8]:
        image = decode(self.read(index), where=self.location(index))
        face = _subject(self._detector(image), image.shape[:2])
        self._faces[index] = face
        if face is None:
            return _middle(image, self.location(index))
        return align(image, face.points)

    def face_size(self, index: int) -> float:
        """Pixels between the eyes before alignment; 0 where no face was found."""
        face = self._face(index)
        return 0.0 if face is None else float(np.linalg.norm(face.points[1] - face.points[0]))

    def without_face(self) -> list[int]:
        """The photos in which no face was found, of those that were read."""
        return sorted(index for index, face in self._faces.items() if face is None)

    def _face(self, index: int) -> Detection | None:
        if index not in self._faces:
            self.crop(index)
        return self._faces[index]


def alignment_notes(source: Source) -> list[str]:
    """What is to be said of pictures that were aligned, or that look as if they should have been."""
    if isinstance(source, AlignedPhotos):
        missing = source.without_face()
        if not missing:
            return []
        first = source.key(missing[0])
        return [f"No face was found in {len(missing)} photos, the first is {first}; their middle was taken."]
    size = _first_size(source) if type(source).crop in _READ_AS_CROPS else None
    if size is None or size == (CROP_SIZE, CROP_SIZE):
        return []
    height, width = size
    return [
        f"Pictures are {width} x {height} pixels and were resized to {CROP_SIZE} x {CROP_SIZE}; if they are photos and "
        "not aligned crops, give --align."
    ]


def _first_size(source: Source) -> tuple[int, int] | None:
    """Height and width of the first picture that can be read; of the others somebody else speaks."""
    for index in range(len(source)):
        try:
            image = decode(source.read(index), where=source.location(index))
        except Error:
            continue
        return image.shape[0], image.shape[1]
    return None


def _subject(faces: list[Detection], shape: tuple[int, ...]) -> Detection | None:
    middle = np.array([shape[1], shape[0]]) / 2

    def standing(face: Detection) -> float:
        left, top, right, bottom = face.box
        offset = np.array([left + right, top + bottom]) / 2 - middle
        return float((right - left) * (bottom - top) - 2 * offset @ offset)

    return max(faces, key=standing, default=None)


def _middle(image: NDArray[np.uint8], where: str) -> NDArray[np.uint8]:
    side = min(image.shape[:2])
    top, left = ((length - side) // 2 for length in image.shape[:2])
    return fit_crop(image[top : top + side, left : left + side], where=where)
