"""Pictures whose five points are known, so that they are aligned as they are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.datasets.folder import Files
from facerts.errors import ImageError
from facerts.images import decode
from facerts.images.align import align


class LandmarkedFiles(Files):
    """Picture files below a folder, each with the five points of its face.

    Args:
        name: for tables and results.
        root: what the keys are relative to.
        keys: the files' paths relative to ``root``.
        points: ``(N, 5, 2)`` x and y in pixels: eyes, nose, corners of the mouth, left to right in the picture.
        identities: each file's identity by name, or None where they are unknown.

    Attributes:
        points: the same as ``float32``.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        keys: Sequence[str],
        points: ArrayLike,
        identities: Sequence[str] | None = None,
    ) -> None:
        super().__init__(name, root, keys, identities)
        self.points: NDArray[np.float32] = np.asarray(points, dtype=np.float32)
        if self.points.shape != (len(keys), 5, 2):
            raise ValueError(f"{len(keys)} pictures need points of shape ({len(keys)}, 5, 2)")

    def crop(self, index: int) -> NDArray[np.uint8]:
        """The picture aligned by its points, ``(112, 112, 3) uint8`` RGB.

        Raises:
            DataError: the bytes cannot be had.
            ImageError: they are no picture, or its points are all in one place.
        """
        where = self.location(index)
        image = decode(self.read(index), where=where)
        try:
            return align(image, self.points[index])
        except ValueError as error:
            raise ImageError(f"{where}: cannot be aligned, {error}") from error

    def face_size(self, index: int) -> float:
        """The distance between the eyes in pixels, before the picture is aligned."""
        left, right = self.points[index, :2]
        return float(np.hypot(*(right - left)))
