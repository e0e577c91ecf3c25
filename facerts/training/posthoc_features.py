"""Outputs of a frozen embedder for images and their augmented views, computed once and cached in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.changed import ChangedCrops
from facerts.datasets.fingerprint import hash_images
from facerts.embedding import FaceOutputs, OnnxEmbedder
from facerts.embedding.embed import concatenate, embed_source
from facerts.embedding.output_cache import OutputCache
from facerts.errors import ModelError
from facerts.images.changes import DEGRADATIONS
from facerts.training.augment import build_augmentation
from facerts.training.recipe import Augmentation

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]

# Role of the tapped tensor, an intermediate tensor of the graph.
TAP = "facerts_tap"
# As in the recipes of the methods that compare views.
AUGMENTATION = Augmentation(flip=True, scale=0.15, shift=0.04, rotation=8.0, change=0.5, kinds=list(DEGRADATIONS))


@dataclass(frozen=True)
class Views:
    """The V views of each image to embed: the original, and others augmented as in recipes.

    View v of image i depends only on (seed, i, v).
    """

    count: int = 1
    augmentation: Augmentation = AUGMENTATION
    seed: int = 0

    @property
    def key(self) -> str:
        """Everything that the views depend on besides the images; empty if there are only the originals."""
        if self.count == 1:
            return ""
        settings = {**self.augmentation.model_dump(mode="json"), "views": self.count, "seed": self.seed}
        return f" {json.dumps(settings, sort_keys=True)}"

    def of(self, source: Source) -> Iterator[Source]:
        """Yield the source once for each view."""
        yield source
        augment = build_augmentation(self.augmentation)
        for number in range(1, self.count):

            def change(crop: NDArray[np.uint8], index: int, view: int = number) -> NDArray[np.uint8]:
                # Keyed as in training; there are no epochs here, so the epoch is 0.
                return augment(crop, (self.seed, 0, index, view))

            yield ChangedCrops(source, f"view {number + 1}", change)


class Features(NamedTuple):
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
    """The features in an embedder's outputs."""
    count = len(outputs)
    norm = np.ones(count, dtype=np.float32) if outputs.norm is None else outputs.norm
    tap = outputs.extras.get(TAP, np.empty((count, 0), dtype=np.float32))
    if len(tap) != count:
        raise ModelError(f"the tapped tensor has {len(tap)} rows for {count} crops; tap a tensor with one row per crop")
    return Features(outputs.embedding, norm, tap)


def cached_features(embedder: OnnxEmbedder, source: Source, cache: OutputCache, views: Views) -> Features:
    """The features of a source's views, from the cache of each embedder, set of images and views if it has them.

    The tapped tensor, if there is one, is among the embedder's extras. The bytes of the aligned images are always
    hashed, but decoded only if the cache cannot be used.
    """
    key = {"model": embedder.identity, "images": hash_images(source).sha256, "views": views.key}
    found = cache.arrays(
        key,
        lambda: features_of(
            concatenate([embed_source(embedder, view, flip=False) for view in views.of(source)])
        )._asdict(),
    )
    return Features(**found)
