"""What the teachers say of images: asked once for each image as it is, or at every step for an augmented view."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.fingerprint import hash_images
from facerts.embedding import OnnxEmbedder, load_embedder
from facerts.embedding.cache import cached_arrays, embedder_key
from facerts.embedding.embed import embed_source
from facerts.errors import Error

# The folder of the cache inside a run's folder.
CACHE = "teachers"


class Ensemble:
    """Several embedders as one: the cosine of two of its embeddings is the mean of the embedders' cosines.

    Unit embeddings one after the other, divided by √k, are such an embedding.

    Args:
        models: ONNX files with their descriptions, or names of models that ship.

    Raises:
        ModelError: one of them cannot be used.
    """

    def __init__(self, models: Sequence[str]) -> None:
        self._embedders: list[OnnxEmbedder] = [load_embedder(model) for model in models]

    def of_views(self, crops: NDArray[np.uint8]) -> NDArray[np.float32]:
        """``(B, D)`` unit embeddings of ``(B, 112, 112, 3)`` RGB crops just as they are given."""
        return _joined([embedder(crops).embedding for embedder in self._embedders])

    def of_images(self, source: Source, *, flip: bool) -> NDArray[np.float32]:
        """``(N, D)`` unit embeddings of a source's images as they are; with ``flip``, their mirrors added."""
        return _joined([embed_source(embedder, source, flip=flip).embedding for embedder in self._embedders])

    def of_source(self, source: Source, cache: Path) -> NDArray[np.float32]:
        """``(N, D)`` unit embeddings of a source's images, each teacher's the sum of the image's and of its mirror's.

        Args:
            source: of aligned images.
            cache: folder with a file for each teacher and set of images, which several runs may share.

        Raises:
            Error: the folder is a file.
            DataError: a file in it is of another kind.
        """
        if cache.is_file():
            raise Error(f"{cache}: teacher.cache is a folder now, with a file for each teacher; name another")
        sha256 = hash_images(source).sha256
        parts = []
        for embedder in self._embedders:
            key = f"{embedder_key(embedder, flip=True)} {sha256}"
            file = cache / f"{embedder.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"
            arrays = cached_arrays(
                file,
                key,
                lambda embedder=embedder: {"embedding": embed_source(embedder, source, flip=True).embedding},  # type: ignore[misc]
            )
            parts.append(arrays["embedding"])
        return _joined(parts)


def _joined(unit: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Unit embeddings of several teachers as unit embeddings whose cosine is the mean of theirs."""
    if len(unit) == 1:
        return unit[0]
    return np.concatenate(unit, axis=1) / np.float32(np.sqrt(len(unit)))
