"""A source's pictures in any order, read ahead of whoever wants them, in bounded memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.folder import IMAGE_SUFFIXES
from facerts.datasets.source import Source
from facerts.errors import DataError
from facerts.io.progress import track

Item = TypeVar("Item")

# Pictures that a thread reads at a time: few enough for photos, enough that threads cost nothing for crops.
CHUNK = 32
# Rows of arrays that are computed with at a time.
PART = 1 << 18
THREADS = min(8, os.cpu_count() or 1)


class EncodedImage(NamedTuple):
    """A picture on its way to another place.

    Attributes:
        identity: its person's number.
        name: ``IDENTITY/FILE``, or ``FILE`` without identities.
        data: its encoded bytes.
    """

    identity: int
    name: str
    data: bytes


def read_ahead(
    order: NDArray[np.integer] | range, load: Callable[[int], Item], text: str, *, unit: str = "images"
) -> Iterator[Item]:
    """What ``load`` gives for each number, in order, with a progress bar; it is called by several threads.

    Args:
        order: ``(N,)`` numbers of pictures.
        load: gives something for a picture.
        text: beside the bar.
        unit: of the bar.
    """

    def loaded(start: int) -> list[Item]:
        return [load(int(index)) for index in order[start : start + CHUNK]]

    def chunks() -> Iterator[list[Item]]:
        waiting: deque[Future[list[Item]]] = deque()
        with ThreadPoolExecutor(THREADS) as pool:
            for start in range(0, len(order), CHUNK):
                waiting.append(pool.submit(loaded, start))
                if len(waiting) > 2 * THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    return track(chain.from_iterable(chunks()), text, total=len(order), unit=unit)


def encoded_images(source: Source, order: NDArray[np.integer], text: str) -> Iterator[EncodedImage]:
    """Pictures of a source with their names, in an order, with a progress bar.

    Raises:
        DataError: the bytes of one cannot be had.
    """
    return read_ahead(order, lambda index: encoded_image(source, index, source.read(index)), text)


def encoded_image(source: Source, index: int, data: bytes) -> EncodedImage:
    """A picture under the name that it has in a folder by identity."""
    name = PurePosixPath(source.key(index)).name
    # Records may be called by their numbers; what is no picture by its name would not be found again.
    if PurePosixPath(name).suffix.lower() not in IMAGE_SUFFIXES:
        name += _ending(data)
    if source.labels is None:
        return EncodedImage(0, name, data)
    label = int(source.labels[index])
    return EncodedImage(label, f"{source.identities[label]}/{name}", data)


def at_least_one(pictures: Iterable[EncodedImage], otherwise: str) -> Iterator[EncodedImage]:
    """The pictures as they come.

    Raises:
        DataError: there is none; it says ``otherwise``.
    """
    any_picture = False
    for picture in pictures:
        any_picture = True
        yield picture
    if not any_picture:
        raise DataError(otherwise)


def by_identity(source: Source, kept: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """``(M,)`` numbers of a source's pictures, those of an identity together, in the source's order otherwise.

    Args:
        source: pictures; without identities they keep their order.
        kept: ``(N,)`` which to give; None for all.
    """
    rows = np.arange(len(source)) if kept is None else np.flatnonzero(kept)
    labels = source.labels
    if labels is None or _rising(labels):
        return rows
    return rows[np.argsort(labels[rows], kind="stable")]


def _rising(labels: NDArray[np.int64]) -> bool:
    """Whether identities come one after the other already, as most sets have them."""
    return all((np.diff(labels[part.start : part.stop + 1]) >= 0).all() for part in parts_of(len(labels)))


def identities_in(source: Source, kept: NDArray[np.bool_] | None = None) -> int:
    """How many identities some of a source's pictures have; 0 where they are unknown.

    Args:
        source: pictures.
        kept: ``(N,)`` which of them; None for all.
    """
    if source.labels is None:
        return 0
    there = np.zeros(len(source.identities), dtype=bool)
    for part in parts_of(len(source)):
        labels = source.labels[part]
        there[labels if kept is None else labels[kept[part]]] = True
    return int(there.sum())


def parts_of(count: int) -> Iterator[slice]:
    """So many rows in parts, so that what is computed from each needs little memory."""
    return (slice(start, start + PART) for start in range(0, count, PART))


def runs(items: Iterable[Item], sizes: Iterable[int]) -> Iterator[Iterator[Item]]:
    """Items one after the other in runs of the sizes given; a run is to be used up before the next."""
    iterator = iter(items)
    for size in sizes:
        yield islice(iterator, size)


def _ending(data: bytes) -> str:
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return ".png"
    if data[:4] == b"RIFF":
        return ".webp"
    return ".bmp" if data[:2] == b"BM" else ".jpg"
