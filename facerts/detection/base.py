"""What every detector gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Detection:
    """One face in a photo, in the photo's pixels.

    Attributes:
        box: ``(4,)`` left, top, right, bottom.
        points: ``(5, 2)`` eyes, nose, corners of the mouth, left to right in the picture.
        score: of the detector, 0 to 1.
    """

    box: NDArray[np.float64]
    points: NDArray[np.float64]
    score: float

    @property
    def area(self) -> float:
        """Of the box, in square pixels."""
        left, top, right, bottom = self.box
        return float((right - left) * (bottom - top))


class Detector(Protocol):
    """Photos in, faces out; may be shared by threads.

    Attributes:
        identity: what its faces depend on: kind, the model's hash, settings.
    """

    identity: str

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        """Faces in ``(H, W, 3) uint8`` RGB, the largest first."""
        ...
