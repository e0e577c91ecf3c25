"""What every kind of data on disk looks like to the rest: encoded pictures in a fixed order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.errors import ImageError
from facerts.images import decode_crop


class Source(ABC):
    """Encoded pictures in a fixed order, with identities where they are known.

    Attributes:
        name: short name for tables and results (the folder's or file's name).
        labels: ``(N,) int64`` in ``0 … C-1`` without gaps, or None where identities are unknown.
        identities: the ``C`` names of the identities, as the data names them; empty where unknown.
        others: how many files beside the pictures were passed over, because their names are not those of pictures.

    Sources can be pickled and sent to worker processes; open files are not sent, each process opens its own.
    """

    name: str
    labels: NDArray[np.int64] | None
    identities: Sequence[str]
    others: int = 0

    @abstractmethod
    def __len__(self) -> int:
        """Number of pictures N."""

    @abstractmethod
    def key(self, index: int) -> str:
        """The picture's name, unique in the source: a relative path, a tar member, a record number."""

    def location(self, index: int) -> str:
        """Where the picture is, for rows and errors: a path that people can follow."""
        return f"{self.name}/{self.key(index)}"

    def file_of(self, index: int) -> Path | None:
        """The file on the disk that holds the picture, perhaps with others; None where no file does."""
        return None

    @abstractmethod
    def read(self, index: int) -> bytes:
        """The picture's encoded bytes (JPEG, PNG, …), unchanged.

        Raises:
            DataError: the bytes cannot be had; the message names file and record.
        """

    def crop(self, index: int) -> NDArray[np.uint8]:
        """The picture as an aligned crop, ``(112, 112, 3) uint8`` RGB.

        Raises:
            DataError: the bytes cannot be had.
            ImageError: they are no aligned crop; the message says where the picture is.
        """
        data = self.read(index)
        try:
            return decode_crop(data, where="")
        except ImageError as error:
            # Millions of good ones need no name, and a bad one may have taken seconds: it is not decoded again.
            raise ImageError(f"{self.location(index)}{error}") from error


class Subset(Source):
    """Some pictures of another source, in the order given; labels are renumbered without gaps."""

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

    def location(self, index: int) -> str:
        return self._source.location(int(self._indices[index]))

    def file_of(self, index: int) -> Path | None:
        return self._source.file_of(int(self._indices[index]))
