"""Embeddings of the teachers: of each original image (cached), and of the augmented views in every step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.fingerprint import hash_images
from facerts.embedding import OnnxEmbedder, load_embedder
from facerts.embedding.embed import IN_FLIGHT, embed_source
from facerts.embedding.onnx_embedder import OnnxQuality
from facerts.embedding.output_cache import OutputCache
from facerts.hub.find import find_model
from facerts.training.recipe import QualityTeacher

# Name of the cache folder inside the run folder.
CACHE = "teachers"
# Images per forward pass. The maps of larger batches leave a core's cache, which doubles the time of some teachers.
BATCH = 16


class TeacherEnsemble:
    """Several embedders as one; the cosine of two of its embeddings is the mean of the embedders' cosines.

    Its embedding is the concatenation of the k unit embeddings, divided by √k.
    """

    def __init__(self, models: Sequence[str]) -> None:
        self.embedders: list[OnnxEmbedder] = [
            load_embedder(find_model(model), threads=_threads()) for model in models
        ]

    def embed_crops(self, crops: NDArray[np.uint8]) -> NDArray[np.float32]:
        """``(B, D)`` unit embeddings of RGB crops ``(B, 112, 112, 3)``, without flipping."""
        return joined([embedder(crops).embedding for embedder in self.embedders])

    def embed_source(self, source: Source, *, flip: bool) -> NDArray[np.float32]:
        """``(N, D)`` unit embeddings of a source's images; with ``flip``, each image's plus its mirror's."""
        return joined(
            [embed_source(each, source, flip=flip, batch_size=BATCH).embedding for each in self.embedders]
        )

    def embed_cached(self, source: Source, cache: Path) -> NDArray[np.float32]:
        """``(N, D)`` unit embeddings of a source's images plus their mirrors', from the cache if it has them.

        The cache is a folder with one file per teacher and set of images; several runs may share it.
        """
        outputs = OutputCache(cache)
        sha256 = hash_images(source).sha256

        def embedding(embedder: OnnxEmbedder) -> NDArray[np.float32]:
            key = {"teacher": embedder.identity, "images": sha256, "flip": True}
            return outputs.arrays(
                key,
                lambda: {"embedding": embed_source(embedder, source, flip=True, batch_size=BATCH).embedding},
            )["embedding"]

        return joined([embedding(embedder) for embedder in self.embedders])


def open_qualities(teachers: Sequence[QualityTeacher]) -> list[OnnxQuality]:
    """The models whose quality is learned."""
    return [
        OnnxQuality(find_model(teacher.model), description=teacher.description, threads=_threads())
        for teacher in teachers
    ]


def _threads() -> int:
    """Threads of a forward pass: several batches are in a teacher at a time, and share the cores."""
    return max(1, (os.cpu_count() or 1) // IN_FLIGHT)


def joined(unit: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Unit embeddings of k teachers, concatenated and divided by √k."""
    if len(unit) == 1:
        return unit[0]
    return np.concatenate(unit, axis=1) / np.float32(np.sqrt(len(unit)))
