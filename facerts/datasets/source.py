"""The interface of all data sets: encoded images in a fixed order."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.errors import ImageError
from facerts.images import decode_crop


class Source(ABC):
    """Encoded images in a fixed order, with identities if they are known.

    Sources can be pickled and sent to worker processes; each process opens its own files.

    Attributes:
        labels: ``(N,) int64`` in ``0 … C-1`` without gaps; None if identities are unknown.
        identities: the ``C`` names of the identities; empty if unknown.
        other_files: number of files skipped because their names are not those of images.
    """

    name: str
    labels: NDArray[np.int64] | None
    identities: Sequence[str]
    other_files: int = 0

    @abstractmethod
    def __len__(self) -> int:
        """Number of images N."""

    @abstractmethod
    def key(self, index: int) -> str:
        """Name of an image, unique in the source: a relative path, a tar member, a record number."""

    def location(self, index: int) -> str:
        """Where an image is, for rows and errors: a path that people can follow."""
        return f"{self.name}/{self.key(index)}"

    def file_of(self, index: int) -> Path | None:
        """The file on disk that contains an image, perhaps among others; None if there is none."""
        return None

    @abstractmethod
    def read(self, index: int) -> bytes:
        """The encoded bytes of an image (JPEG, PNG, …), unchanged.

        Raises:
            DataError: the bytes cannot be read; the message names file and record.
        """

    def crop(self, index: int) -> NDArray[np.uint8]:
        """An image as an aligned crop, ``(112, 112, 3) uint8`` RGB.

        Raises:
            DataError: the bytes cannot be read.
            ImageError: they are not an aligned crop; the message names the image.
        """
        data = self.read(index)
        try:
            return decode_crop(data, where="")
        except ImageError as error:
            # Building the location for millions of good images would cost time, so it is added only here.
            raise ImageError(f"{self.location(index)}{error}") from error

    def crop_identity(self) -> str | None:
        """What the crops depend on besides the images' bytes; empty if nothing, None if that is not known."""
        return "" if type(self).crop is Source.crop else None


class WrappedSource(Source):
    """The images of another source, of which a subclass changes something."""

    def __init__(self, source: Source) -> None:
        self.name, self.other_files = source.name, source.other_files
        self.labels, self.identities = source.labels, source.identities
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def key(self, index: int) -> str:
        return self._source.key(index)

    def location(self, index: int) -> str:
        return self._source.location(index)

    def file_of(self, index: int) -> Path | None:
        return self._source.file_of(index)

    def read(self, index: int) -> bytes:
        return self._source.read(index)


class Subset(Source):
    """A subset of another source's images, in the given order; labels are renumbered without gaps."""

    def __init__(self, source: Source, indices: Sequence[int] | NDArray[np.integer]) -> None:
        self.name = source.name
        self._source = source
        self._indices = np.asarray(indices, dtype=np.int64)
        if source.labels is None:
            self.labels, self.identities = None, ()
        else:
            kept, self.labels = np.unique(source.labels[self._indices], return_inverse=True)
            self.identities = [source.identities[label] for label in kept]

    def __len__(self) -> int:
        return len(self._indices)

    def key(self, index: int) -> str:
        return self._source.key(int(self._indices[index]))

    def read(self, index: int) -> bytes:
        return self._source.read(int(self._indices[index]))

    def crop(self, index: int) -> NDArray[np.uint8]:
        return self._source.crop(int(self._indices[index]))

    def crop_identity(self) -> str | None:
        inner = self._source.crop_identity()
        return f"{inner} rows {hashlib.sha256(self._indices.tobytes()).hexdigest()}" if inner else inner

    def location(self, index: int) -> str:
        return self._source.location(int(self._indices[index]))

    def file_of(self, index: int) -> Path | None:
        return self._source.file_of(int(self._indices[index]))
