"""A file cache of arrays that are expensive to compute, with a key of all that they depend on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.embedding import OnnxModel
from facerts.errors import DataError
from facerts.io.files import atomic_write
from facerts.io.npz import read_npz

Arrays = Mapping[str, NDArray[np.float32]]


def cached_arrays(cache: Path, key: str, compute: Callable[[], Arrays]) -> Arrays:
    """Arrays from the cache if its key matches; otherwise computed and stored.

    Args:
        cache: an .npz file, which is written if it is missing or has another key.
        key: everything that the arrays depend on.
        compute: computes the arrays, by name.

    Raises:
        DataError: the cache is another kind of file.
    """
    if cache.exists():
        try:
            stored = read_npz(cache)
        except DataError as error:
            raise DataError(f"{cache}: not a cache of features; remove it or give another file") from error
        if "key" not in stored:
            raise DataError(f"{cache}: not a cache of features; remove it or give another file")
        if str(stored.pop("key")) == key:
            return stored
    arrays = compute()
    with atomic_write(cache) as file:
        np.savez(file, allow_pickle=False, key=np.array(key), **arrays)
    return arrays


def embedder_key(embedder: OnnxModel, **options: object) -> str:
    """A cache key of all that a model's outputs depend on besides the images: its file, description and options.

    Args:
        embedder: the model.
        options: options of the computation, as values that JSON can represent.
    """
    description = embedder.description
    settings = {
        "input": description.input.model_dump(mode="json"),
        "outputs": description.outputs,
        "normalize_embedding": description.normalize_embedding,
        **options,
    }
    return f"{embedder.sha256} {json.dumps(settings, sort_keys=True)}"
