"""Crops that are changed when they are read, such as faces that are degraded at random."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source, WrappedSource
from facerts.images import encode_png
from facerts.images.changes import DEGRADATIONS, apply_change

# A crop and its index in the source to the changed crop.
Change = Callable[[NDArray[np.uint8], int], NDArray[np.uint8]]

# Separates the random numbers of the choice from those of the degradation.
_CHOICE, _DEGRADATION = 0xF19A, 0xF19B


class ChangedCrops(WrappedSource):
    """The crops of another source, each changed in a reproducible way, which depends on the crop and its index alone.

    ``identity`` is everything that ``change`` does, as text, for caches of what is computed from the crops; None if
    these have keys of their own.
    """

    def __init__(self, source: Source, name: str, change: Change, identity: str | None = None) -> None:
        super().__init__(source)
        self.name = f"{source.name}, {name}"
        self._change, self._identity = change, identity

    def read(self, index: int) -> bytes:
        return encode_png(self.crop(index))

    def crop(self, index: int) -> NDArray[np.uint8]:
        return self._change(self._source.crop(index), index)

    def crop_identity(self) -> str | None:
        inner = self._source.crop_identity()
        return None if inner is None or self._identity is None else f"{inner} {self._identity}".strip()


def degraded_at_random(source: Source, seed: int = 0, share: float = 1.0) -> Source:
    """Aligned faces of which a share is degraded by one of ``DEGRADATIONS`` at a uniformly random severity.

    Whether and how an image is degraded depends only on the seed and its position in the source. With half of the
    images degraded, many pairs have one poor image, as in XQLFW (Knoche et al., "Cross-quality LFW", FG 2021).
    """

    def change(crop: NDArray[np.uint8], index: int) -> NDArray[np.uint8]:
        kind, severity = degradation(index, seed, share)
        return apply_change(crop, kind, severity, (seed, index, _DEGRADATION)) if severity else crop

    name = {0.5: "half degraded", 1.0: "degraded"}.get(share, f"{share:g} degraded")
    return ChangedCrops(source, name, change, f"{name}, seed {seed}")


def degradation(index: int, seed: int, share: float = 1.0) -> tuple[str, float]:
    """Kind and severity of an image's degradation, a severity of 0 for none."""
    random = np.random.default_rng((seed, index, _CHOICE))
    if random.random() >= share:
        return DEGRADATIONS[0], 0.0
    return DEGRADATIONS[random.integers(len(DEGRADATIONS))], float(1.0 - random.random())
