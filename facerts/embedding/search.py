"""Search in a gallery, by NumPy or by FAISS: the same templates from both, ties aside."""

from __future__ import annotations

from importlib import import_module
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from facerts.errors import MissingExtraError
from facerts.metrics.identification import SearchResult, search

Backend = Literal["numpy", "faiss"]


def find(gallery: NDArray[np.float32], probes: NDArray[np.float32], k: int, backend: Backend) -> SearchResult:
    """The k gallery templates of highest cosine for each probe, exactly.

    Args:
        gallery: ``(G, d)`` of unit length.
        probes: ``(P, d)`` of unit length.
        k: how many; the whole gallery where it is smaller.
        backend: "faiss" takes an exact index of inner products (Johnson, Douze, Jégou: "Billion-scale similarity
            search with GPUs", IEEE Transactions on Big Data 2021).

    Raises:
        MissingExtraError: FAISS is not installed.
        ValueError: an empty gallery, or sizes that do not fit.
    """
    if backend == "numpy":
        return search(gallery, probes, k)
    try:
        faiss = import_module("faiss")
    except ImportError as error:
        raise MissingExtraError("search by FAISS needs faiss-cpu: pip install 'facerts[faiss]'") from error
    search(gallery, probes[:0], k)  # refuses what FAISS would fail on without a word
    index = faiss.IndexFlatIP(gallery.shape[1])
    index.add(np.ascontiguousarray(gallery, dtype=np.float32))
    asked = np.ascontiguousarray(probes, dtype=np.float32)
    scores, templates = index.search(asked, min(k, len(gallery)))
    return SearchResult(scores, templates)
