"""The uncertainty of held-out faces, clean and degraded, during a training run (Fig. 4 of the RTS paper)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.changed import ChangedCrops
from facerts.embedding.embed import embed_source
from facerts.embedding.outputs import Embedder
from facerts.images.corruptions import KINDS, degrade

SEVERITY = 0.8
PERCENTILES = (5, 50, 95)


class DegradedFaces:
    """Faces as they are, and with each kind of corruption; every measurement is of the same pixels.

    Args:
        source: aligned faces.
        images: number of faces, evenly spaced; at most all of them.

    Attributes:
        name: name of the source.
    """

    def __init__(self, source: Source, images: int) -> None:
        self.name = source.name
        self._indices = np.unique(np.linspace(0, len(source) - 1, min(images, len(source))).astype(int))
        degraded = {f"{kind}/{SEVERITY:g}": _degraded(source, kind) for kind in KINDS}
        self._sets: dict[str, Source] = {"clean": source, **degraded}

    def __len__(self) -> int:
        """Number of faces, each in every set."""
        return len(self._indices)

    def measure(self, embedder: Embedder) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield each set ("clean", or kind and severity: "blur/0.8") with percentiles of uncertainty and norm.

        A score that is not finite for all faces is left out: exponentials can overflow early in training.
        """
        for corruption, faces in self._sets.items():
            outputs = embed_source(embedder, faces, flip=False, indices=self._indices, progress=False)
            scores = {"uncertainty": outputs.uncertainty, "norm": outputs.norm}
            percentiles = {
                f"{name}_p{percent}": float(np.percentile(values, percent))
                for name, values in scores.items()
                if values is not None and np.isfinite(values).all()
                for percent in PERCENTILES
            }
            yield corruption, percentiles


def _degraded(source: Source, kind: str) -> Source:
    def change(crop: NDArray[np.uint8], index: int) -> NDArray[np.uint8]:
        return degrade(crop, kind, SEVERITY, seed=index)

    return ChangedCrops(source, kind, change)
