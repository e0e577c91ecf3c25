"""Drawn people as a source of any size, to measure speed without anybody's data."""

from __future__ import annotations

import numpy as np

from facerts.datasets.source import Source
from facerts.datasets.synthetic import draw_face
from facerts.images import encode_jpeg


class SyntheticSource(Source):
    """See ``Source``; a picture is drawn when it is first read, and kept.

    Args:
        identities: C.
        pictures: of each.
        people: that are drawn; identity ``i`` looks like ``i mod people``, so a set of millions costs no more drawing
            than one of a thousand.
        seed: another gives other people.
    """

    def __init__(self, identities: int, pictures: int, *, people: int = 1000, seed: int = 0) -> None:
        self.name = "drawn"
        self.identities = [f"{identity:07d}" for identity in range(identities)]
        self.labels = np.repeat(np.arange(identities), pictures)
        self._pictures, self._people, self._seed = pictures, people, seed
        self._drawn: dict[tuple[int, int], bytes] = {}

    def __len__(self) -> int:
        return len(self.identities) * self._pictures

    def key(self, index: int) -> str:
        identity, picture = divmod(index, self._pictures)
        return f"{self.identities[identity]}/{picture:04d}.jpg"

    def read(self, index: int) -> bytes:
        identity, picture = divmod(index, self._pictures)
        shown = identity % self._people, picture
        if shown not in self._drawn:
            self._drawn[shown] = encode_jpeg(draw_face(*shown, seed=self._seed), 90)
        return self._drawn[shown]
