"""A warning for arrays whose channels are in the other order than was said, which costs quality in silence."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from facerts.scoring.face import Face
from facerts.scoring.parts import Quality
from facerts.scoring.prepare import LazyImage

# Faces that are looked at before the order is taken for right.
FACES = 16
# The mean gain of quality by swapping from which the order is wrong, in interquartile ranges of the calibration faces'
# quality: for one face, and for four or more. On 800 held-out faces and 800 of All-Age-Faces (facerts-small, and
# facerts-quality on MobileFaceNet), right channels are suspected by at most one lone face in 800 and by none
# in several; swapped ones are found by half to four fifths of lone faces and by 98 to 100% of fours.
ONE, MANY = 1.0, 0.5


class SwappedChannels:
    """Compares the first faces that come as arrays with the same faces in the other order, and warns once.

    Models without calibration are not checked, as nothing says which gain of theirs is large.
    """

    def __init__(self, quality: Quality) -> None:
        self._quality = quality
        self._gains: dict[str, list[float]] = {"RGB": [], "BGR": []}
        calibration = quality.description.calibration
        quantiles = None if calibration is None else calibration.quantiles
        self._spread = quantiles[75] - quantiles[25] if quantiles else None
        self._done = not self._spread

    def watch(self, images: Sequence[LazyImage], scored: Iterable[list[Face]]) -> Iterator[list[Face]]:
        """The faces of each image, unchanged; those that come from arrays are looked at."""
        for image, faces in zip(images, scored, strict=True):
            if image.color is not None and not self._done and len(self._gains[image.color]) < FACES:
                self._see(image.color, faces)
            yield faces

    def _see(self, color: str, faces: Sequence[Face]) -> None:
        seen = [
            (face.crop, face.row.quality)
            for face in faces
            if face.crop is not None and face.row.quality is not None
        ]
        if not seen:
            return
        crops, given = zip(*seen, strict=True)
        swapped = self._quality(np.ascontiguousarray(np.stack(crops)[..., ::-1]))
        gains = self._gains[color]
        gains += (swapped - np.array(given)).tolist()
        limit = max(MANY, ONE / math.sqrt(len(gains)))
        if np.mean(gains) > limit * (self._spread or math.inf):
            self._done = True
            warnings.warn(
                f"faces score clearly better with their channels swapped, so these arrays seem not to be {color}; give "
                'color="BGR" for images of OpenCV, and color="RGB" for all others',
                stacklevel=5,
            )
