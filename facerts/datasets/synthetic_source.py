"""Synthetic faces as a source of any size, for benchmarks without real data."""

from __future__ import annotations

import numpy as np

from facerts.datasets.source import Source
from facerts.datasets.synthetic import draw_face
from facerts.images import encode_jpeg


class SyntheticSource(Source):
    """Synthetic faces; each image is drawn when it is first read, and cached.

    Args:
        people: number of different people; identity ``i`` looks like ``i mod people``, so drawing a set of millions
            takes no longer than drawing a thousand people.
    """

    def __init__(self, identities: int, images: int, *, people: int = 1000, seed: int = 0) -> None:
        self.name = "synthetic"
        self.identities = [f"{identity:07d}" for identity in range(identities)]
        self.labels = np.repeat(np.arange(identities), images)
        self._images, self._people, self._seed = images, people, seed
        self._cache: dict[tuple[int, int], bytes] = {}

    def __len__(self) -> int:
        return len(self.identities) * self._images

    def key(self, index: int) -> str:
        identity, number = divmod(index, self._images)
        return f"{self.identities[identity]}/{number:04d}.jpg"

    def read(self, index: int) -> bytes:
        identity, number = divmod(index, self._images)
        face = identity % self._people, number
        if face not in self._cache:
            self._cache[face] = encode_jpeg(draw_face(*face, seed=self._seed), 90)
        return self._cache[face]
