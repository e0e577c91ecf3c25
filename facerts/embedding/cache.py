"""Arrays that took long to compute, kept in a file with what they depend on."""

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
    """The arrays of this key, from the cache where it has them.

    Args:
        cache: an .npz file, written where it is missing or has another key.
        key: all that the arrays depend on.
        compute: gives them, always by the same names.

    Raises:
        DataError: the cache is a file of another kind.
    """
    if cache.exists():
        try:
            stored = read_npz(cache)
        except DataError as error:
            raise DataError(f"{cache}: not a cache of features; remove it, or name another file") from error
        if "key" not in stored:
            raise DataError(f"{cache}: not a cache of features; remove it, or name another file")
        if str(stored.pop("key")) == key:
            return stored
    arrays = compute()
    with atomic_write(cache) as file:
        np.savez(file, allow_pickle=False, key=np.array(key), **arrays)
    return arrays


def embedder_key(embedder: OnnxModel, **how: object) -> str:
    """All that a model's outputs depend on beside the pictures: its bytes, its description, how it is asked.

    Args:
        embedder: the model.
        how: it is asked, in values that JSON has.
    """
    told = embedder.description
    told_how = {
        "input": told.input.model_dump(mode="json"),
        "outputs": told.outputs,
        "normalize_embedding": told.normalize_embedding,
        **how,
    }
    return f"{embedder.sha256} {json.dumps(told_how, sort_keys=True)}"
