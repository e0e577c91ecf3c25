"""Read a source's images in any order, ahead of their consumer, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import PurePosixPath
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.images import IMAGE_SUFFIXES, image_suffix, in_flight
from facerts.io.map_ahead import map_ahead
from facerts.io.progress import track

Item = TypeVar("Item")

# Images that a thread reads at a time: few enough for photos, enough to make threading overhead negligible for crops.
CHUNK = 32
THREADS = min(8, os.cpu_count() or 1)


class EncodedImage(NamedTuple):
    """An encoded image for a data set: its label, 0 without identities, and ``IDENTITY/FILE``, or ``FILE`` without."""

    identity: int
    name: str
    data: bytes


def read_ahead(order: NDArray[np.integer] | range, load: Callable[[int], Item], text: str) -> Iterator[Item]:
    """Call ``load`` for each index in several threads, and yield the results in order with a progress bar."""

    def loaded(start: int) -> list[Item]:
        items = []
        for index in order[start : start + CHUNK]:
            with in_flight():
                items.append(load(int(index)))
        return items

    def chunks() -> Iterator[list[Item]]:
        with ThreadPoolExecutor(THREADS) as pool:
            yield from map_ahead(pool, loaded, range(0, len(order), CHUNK), 2 * THREADS + 1)

    return track(chain.from_iterable(chunks()), text, total=len(order), unit="images")


def encoded_images(source: Source, order: NDArray[np.integer], text: str) -> Iterator[EncodedImage]:
    """Images of a source in a given order of indices, with a progress bar."""
    return read_ahead(order, lambda index: encoded_image(source, index, source.read(index)), text)


def encoded_image(source: Source, index: int, data: bytes) -> EncodedImage:
    """An image with the name that it gets in a folder by identity."""
    name = PurePosixPath(source.key(index)).name
    # The key of a record may be a bare number; a file without an image suffix would not be found again.
    if PurePosixPath(name).suffix.lower() not in IMAGE_SUFFIXES:
        name += image_suffix(data)
    if source.labels is None:
        return EncodedImage(0, name, data)
    label = int(source.labels[index])
    return EncodedImage(label, f"{source.identities[label]}/{name}", data)


def order_by_identity(source: Source, kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """``(M,)`` indices of the images of a source that are ``kept``, by identity, otherwise in the source's order."""
    rows = np.flatnonzero(kept)
    return rows if source.labels is None else rows[np.argsort(source.labels[rows], kind="stable")]


def count_identities(source: Source, kept: NDArray[np.bool_]) -> int:
    """Number of identities among the images of a source that are ``kept``; 0 if identities are unknown."""
    present = np.zeros(len(source.identities), dtype=bool)
    if source.labels is not None:
        present[source.labels[kept]] = True
    return int(present.sum())
