"""The interface of all detectors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Detection:
    """A face in a photo, in pixels of the photo.

    Attributes:
        box: ``(4,)`` left, top, right, bottom.
        points: ``(5, 2)`` eyes, nose, corners of the mouth, left to right in the image.
        score: confidence of the detector, 0 to 1.
    """

    box: NDArray[np.float64]
    points: NDArray[np.float64]
    score: float

    @property
    def area(self) -> float:
        """Area of the box in square pixels."""
        left, top, right, bottom = self.box
        return float((right - left) * (bottom - top))


class OpenDetector(Protocol):
    """Finds faces in photos; may be shared by threads."""

    @property
    def identity(self) -> str:
        """Everything that the detections depend on: kind, hash of the model, settings."""
        ...

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        """Detect faces in an image, ``(H, W, 3) uint8`` RGB; the largest comes first."""
        ...


class FaceFinder(Protocol):
    """Finds the faces in images; may be shared by threads. Every ``OpenDetector`` is one, as is ``AutoDetector``."""

    @property
    def identity(self) -> str:
        """Everything that the detections depend on."""
        ...

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection] | None:
        """The faces in an image, ``(H, W, 3) uint8`` RGB, the largest first; None if it is itself an aligned crop."""
        ...


def largest_first(faces: Iterable[Detection]) -> list[Detection]:
    """The order in which every detector returns faces; where one face of a photo counts, it is the first.

    ``docs/decisions/index.md`` says why the largest.
    """
    return sorted(faces, key=lambda face: face.area, reverse=True)
