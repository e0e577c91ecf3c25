"""What a frozen embedder says of pictures and of views of them, computed once and kept in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.fingerprint import hash_images
from facerts.embedding import FaceOutputs, OnnxEmbedder
from facerts.embedding.cache import Arrays, cached_arrays
from facerts.embedding.embed import concatenate, embed_source
from facerts.errors import ModelError
from facerts.training.posthoc.views import Views

Floats = NDArray[np.float32]

# The role of a tensor that is tapped from the graph.
TAP = "facerts_tap"


@dataclass(frozen=True)
class Features:
    """What heads read, of N images; of V views of each, N is V times as many: row v·N + i is view v of image i.

    Attributes:
        unit: ``(N, d)``, the embedding at unit length.
        norm: ``(N,)``, the length that it had; 1 where the embedder hides it.
        tap: ``(N, f)``, an earlier tensor of the graph; f is 0 where none is tapped.
    """

    unit: Floats
    norm: Floats
    tap: Floats

    @property
    def embedding(self) -> Floats:
        """``(N, d)`` before normalization."""
        return self.unit * self.norm[:, None]


def features_of(outputs: FaceOutputs) -> Features:
    """The features in an embedder's outputs.

    Raises:
        ModelError: the tapped tensor is not one row for each crop.
    """
    count = len(outputs)
    norm = np.ones(count, dtype=np.float32) if outputs.norm is None else outputs.norm
    tap = outputs.extras.get(TAP, np.empty((count, 0), dtype=np.float32))
    if len(tap) != count:
        raise ModelError(
            f"the tapped tensor has {len(tap)} rows for {count} crops; tap one with a row for each"
        )
    return Features(outputs.embedding, norm, tap)


def cached_features(
    embedder: OnnxEmbedder, source: Source, cache: Path, *, key: str, views: Views
) -> Features:
    """The features of a source's views, from the cache where it has them.

    Args:
        embedder: the frozen embedder, with the tapped tensor among its extras where there is one.
        source: of aligned pictures; their bytes are hashed, and decoded only if the cache does not have them.
        cache: an .npz file, written where it is missing, or of another embedder, other pictures or other views.
        key: of the embedder and how it is asked, see ``evaluate.cache.embedder_key``.
        views: of each picture.

    Raises:
        DataError: the cache is a file of another kind.
    """

    def compute() -> Arrays:
        outputs = [embed_source(embedder, view, flip=False) for view in views.of(source)]
        features = features_of(concatenate(outputs))
        return {"unit": features.unit, "norm": features.norm, "tap": features.tap}

    return Features(**cached_arrays(cache, f"{key} {hash_images(source).sha256}{views.key}", compute))
