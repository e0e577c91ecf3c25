"""Images with known landmarks, which are aligned when they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.datasets.folder import Files
from facerts.errors import ImageError
from facerts.images import decode
from facerts.images.align import align


class LandmarkedFiles(Files):
    """Image files below a folder, each with the five landmarks of its face, ``(N, 5, 2) float32`` in all.

    They are x and y in pixels: eyes, nose, corners of the mouth, left to right in the image.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        keys: Sequence[str],
        points: ArrayLike,
    ) -> None:
        super().__init__(name, root, keys, None)
        self.points: NDArray[np.float32] = np.asarray(points, dtype=np.float32)
        if self.points.shape != (len(keys), 5, 2):
            raise ValueError(f"{len(keys)} images need points of shape ({len(keys)}, 5, 2)")

    def crop(self, index: int) -> NDArray[np.uint8]:
        """The image aligned by its landmarks, ``(112, 112, 3) uint8`` RGB."""
        where = self.location(index)
        image = decode(self.read(index), where=where)
        try:
            return align(image, self.points[index])
        except ImageError as error:
            raise ImageError(f"{where}: cannot be aligned, {error}") from error

    def crop_identity(self) -> str:
        return f"landmarks {hashlib.sha256(self.points.tobytes()).hexdigest()}"

    def face_size(self, index: int) -> float:
        """Distance between the eyes in pixels, before alignment."""
        left, right = self.points[index, :2]
        return float(np.hypot(*(right - left)))
