"""Exact search in a gallery with NumPy or FAISS; both find the same templates, except for ties."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from facerts.errors import MissingExtraError
from facerts.metrics.identification import SearchResult, search

Backend = Literal["numpy", "faiss"]


def find(gallery: NDArray[np.float32], probes: NDArray[np.float32], k: int, backend: Backend) -> SearchResult:
    """The k gallery templates with the highest cosine similarity for each probe, exactly; all if the gallery has fewer.

    Gallery ``(G, d)`` and probes ``(P, d)`` are of unit length. FAISS searches an exact index of inner products
    (Johnson, Douze, Jégou: "Billion-scale similarity search with GPUs", IEEE Transactions on Big Data 2021).

    Raises:
        ValueError: the gallery is empty, or the sizes of gallery and probes differ.
    """
    if backend == "numpy":
        return search(gallery, probes, k)
    faiss = import_faiss()
    search(gallery, probes[:0], k)  # validates the arguments, on which FAISS would fail silently
    index = faiss.IndexFlatIP(gallery.shape[1])
    index.add(np.ascontiguousarray(gallery, dtype=np.float32))
    scores, templates = index.search(np.ascontiguousarray(probes, dtype=np.float32), min(k, len(gallery)))
    return SearchResult(scores, templates)


def import_faiss() -> Any:
    """The module ``faiss``; a ``MissingExtraError`` if it is not installed."""
    try:
        return import_module("faiss")
    except ImportError as error:
        raise MissingExtraError("searching with FAISS needs faiss-cpu: pip install '.[use]'") from error
