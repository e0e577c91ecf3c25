"""Outputs of a frozen embedder for images and their augmented views, computed once and cached in a file."""

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

# Role of the tapped tensor, an intermediate tensor of the graph.
TAP = "facerts_tap"


@dataclass(frozen=True)
class Features:
    """The inputs of the heads, for V views of N images; row v·N + i is view v of image i.

    Attributes:
        unit: ``(V·N, d)`` unit embeddings.
        norm: ``(V·N,)`` norms before normalization; 1 if the embedder does not output them.
        tap: ``(V·N, f)`` values of the tapped tensor; f is 0 if none is tapped.
    """

    unit: Floats
    norm: Floats
    tap: Floats

    @property
    def embedding(self) -> Floats:
        """``(V·N, d)`` embeddings before normalization."""
        return self.unit * self.norm[:, None]


def features_of(outputs: FaceOutputs) -> Features:
    """The features in an embedder's outputs.

    Raises:
        ModelError: the tapped tensor does not have one row per crop.
    """
    count = len(outputs)
    norm = np.ones(count, dtype=np.float32) if outputs.norm is None else outputs.norm
    tap = outputs.extras.get(TAP, np.empty((count, 0), dtype=np.float32))
    if len(tap) != count:
        raise ModelError(
            f"the tapped tensor has {len(tap)} rows for {count} crops; tap a tensor with one row per crop"
        )
    return Features(outputs.embedding, norm, tap)


def cached_features(
    embedder: OnnxEmbedder, source: Source, cache: Path, *, key: str, views: Views
) -> Features:
    """The features of a source's views, from the cache if it has them.

    Args:
        embedder: the frozen embedder, with the tapped tensor among its extras if there is one.
        source: aligned images; their bytes are always hashed, but decoded only if the cache cannot be used.
        cache: an .npz file; written if it is missing or belongs to another embedder, other images or other views.
        key: key of the embedder and its options, see ``embedding.cache.embedder_key``.
        views: views of each image.

    Raises:
        DataError: the cache is a file of another kind.
    """

    def compute() -> Arrays:
        outputs = [embed_source(embedder, view, flip=False) for view in views.of(source)]
        features = features_of(concatenate(outputs))
        return {"unit": features.unit, "norm": features.norm, "tap": features.tap}

    return Features(**cached_arrays(cache, f"{key} {hash_images(source).sha256}{views.key}", compute))
