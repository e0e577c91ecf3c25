"""Photos in place of crops: benchmarks as distributed, aligned when they are read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.source import DerivedSource, WrappedSource
from facerts.detection.detector import FaceFinder
from facerts.errors import Error
from facerts.images import CROP_SIZE, decode, fit_crop
from facerts.images.align import TEMPLATE, align

# Sources that treat their images as crops, whatever their size.
_READ_AS_CROPS = (Source.crop, DerivedSource.crop)


class AlignedPhotos(WrappedSource):
    """A source of photos as a source of crops: the largest face of each photo is detected and aligned.

    If no face is found, the center of the photo is cropped.
    """

    def __init__(self, photos: Source, detector: FaceFinder) -> None:
        super().__init__(photos)
        self._detector = detector
        # Distance between the eyes by photo; None if no face was found.
        self._sizes: dict[int, float | None] = {}

    def crop(self, index: int) -> NDArray[np.uint8]:
        image = decode(self.read(index), where=self.location(index))
        faces = self._detector(image)
        if faces is None:
            self._sizes[index] = float(np.linalg.norm(TEMPLATE[1] - TEMPLATE[0]))
            return fit_crop(image, where=self.location(index))
        if not faces:
            self._sizes[index] = None
            side = min(image.shape[:2])
            top, left = ((length - side) // 2 for length in image.shape[:2])
            return fit_crop(image[top : top + side, left : left + side], where=self.location(index))
        points = faces[0].points
        self._sizes[index] = float(np.linalg.norm(points[1] - points[0]))
        return align(image, points)

    def crop_identity(self) -> str:
        return f"largest face, aligned by {self._detector.identity}"

    def face_size(self, index: int) -> float:
        """Distance between the eyes in pixels, before alignment; 0 if no face was found."""
        if index not in self._sizes:
            self.crop(index)
        return self._sizes[index] or 0.0

    def without_face(self) -> list[int]:
        """Indices of the photos read so far in which no face was found."""
        return sorted(index for index, size in self._sizes.items() if size is None)

    def restore(self, rows: NDArray[np.integer], sizes: NDArray[np.floating], without_face: NDArray[np.bool_]) -> None:
        """Remember the ``face_size`` of photos, and those without a face, so that none is detected again."""
        for row, size, is_missing in zip(rows.tolist(), sizes.tolist(), without_face.tolist(), strict=True):
            self._sizes[row] = None if is_missing else size


def alignment_notes(source: Source, advice: str = "set a detector (detector=yunet)") -> list[str]:
    """Warnings about images that were aligned, or that look as if they should have been."""
    if isinstance(source, AlignedPhotos):
        missing = source.without_face()
        if not missing:
            return []
        first = source.key(missing[0])
        return [f"No face was found in {len(missing)} photos, the first is {first}; their center was cropped."]
    size = _first_size(source) if type(source).crop in _READ_AS_CROPS else None
    if size is None or size == (CROP_SIZE, CROP_SIZE):
        return []
    height, width = size
    return [
        f"Images are {width} x {height} pixels and were resized to {CROP_SIZE} x {CROP_SIZE}; if they are photos and "
        f"not aligned crops, {advice}."
    ]


def _first_size(source: Source) -> tuple[int, int] | None:
    """Height and width of the first image that can be read."""
    for index in range(len(source)):
        try:
            image = decode(source.read(index), where=source.location(index))
        except Error:
            continue
        return image.shape[0], image.shape[1]
    return None
