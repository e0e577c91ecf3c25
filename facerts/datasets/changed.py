"""Crops that are changed when they are read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.images import encode_png

# A crop and its index in the source to the changed crop.
Change = Callable[[NDArray[np.uint8], int], NDArray[np.uint8]]


class ChangedCrops(Source):
    """The crops of another source, each changed in a reproducible way.

    Args:
        source: aligned images.
        name: name of the change, added to that of the source.
        change: changes a crop; must depend on nothing but the crop and its index.
        identity: everything that ``change`` does, as text, for caches of what is computed from the crops; None if these
            have keys of their own.
    """

    def __init__(self, source: Source, name: str, change: Change, identity: str | None = None) -> None:
        self.name = f"{source.name}, {name}"
        self.labels, self.identities, self.other_files = source.labels, source.identities, source.other_files
        self._source, self._change, self._identity = source, change, identity

    def __len__(self) -> int:
        return len(self._source)

    def key(self, index: int) -> str:
        return self._source.key(index)

    def location(self, index: int) -> str:
        return self._source.location(index)

    def read(self, index: int) -> bytes:
        return encode_png(self.crop(index))

    def crop(self, index: int) -> NDArray[np.uint8]:
        return self._change(self._source.crop(index), index)

    def crop_identity(self) -> str | None:
        inner = self._source.crop_identity()
        return None if inner is None or self._identity is None else f"{inner} {self._identity}".strip()
