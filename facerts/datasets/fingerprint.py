"""Fingerprints of data sets and their images: hashes of names and bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.encoded_images import read_ahead
from facerts.datasets.source import Source
from facerts.errors import Error

_DIGEST_BYTES = 16


@dataclass(frozen=True)
class ImageHashes:
    """The hashes of a source's images.

    Attributes:
        sha256: of all names and bytes, in order; an image that cannot be read counts as its problem.
        first: ``(N,)`` the first image with the bytes of each.
        unreadable: the problems of images that cannot be read, by index.
    """

    sha256: str
    first: NDArray[np.int64]
    unreadable: dict[int, str]


def hash_images(source: Source, text: str = "") -> ImageHashes:
    """Hash all images of a source, reading each once, with a progress bar if there is a text for it."""

    def load(index: int) -> tuple[bytes, bool]:
        try:
            return source.read(index), True
        except Error as error:
            return str(error).encode("utf-8", "surrogateescape"), False

    whole = hashlib.sha256()
    digests = np.empty(len(source), dtype=f"V{_DIGEST_BYTES}")
    unreadable: dict[int, str] = {}
    for index, (data, is_readable) in enumerate(read_ahead(range(len(source)), load, text)):
        # File names need not be valid text.
        whole.update(f"{source.key(index)}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
        whole.update(data)
        digests[index] = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
        if not is_readable:
            unreadable[index] = data.decode("utf-8", "surrogateescape")
    _, first, of_image = np.unique(digests, return_index=True, return_inverse=True)
    return ImageHashes(whole.hexdigest(), first[of_image].reshape(-1), unreadable)
