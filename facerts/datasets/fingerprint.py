"""Fingerprints of data sets and their images: hashes of names and bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source


@dataclass(frozen=True)
class ImageHashes:
    """The SHA-256 of a source's names and bytes, in order, and the ``(N,)`` first image with the bytes of each."""

    sha256: str
    first: NDArray[np.int64]


def hash_images(source: Source) -> ImageHashes:
    """Hash all images of a source, reading each once."""
    whole = hashlib.sha256()
    seen: dict[bytes, int] = {}
    first = np.empty(len(source), dtype=np.int64)
    for index in range(len(source)):
        data = source.read(index)
        # File names need not be valid text.
        whole.update(f"{source.key(index)}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
        whole.update(data)
        first[index] = seen.setdefault(hashlib.blake2b(data, digest_size=16).digest(), index)
    return ImageHashes(whole.hexdigest(), first)
