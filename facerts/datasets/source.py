"""The interface of all data sets: encoded images in a fixed order."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

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
        """The encoded bytes of an image (JPEG, PNG, …), unchanged."""

    def crop(self, index: int) -> NDArray[np.uint8]:
        """An image as an aligned crop, ``(112, 112, 3) uint8`` RGB."""
        return decode_crop(self.read(index), where=self.location(index))

    def crop_identity(self) -> str | None:
        """What the crops depend on besides the images' bytes; empty if nothing, None if that is not known."""
        return "" if type(self).crop is Source.crop else None


class DerivedSource(Source):
    """Images of other sources, which stay where they are."""

    @abstractmethod
    def _find(self, index: int) -> tuple[Source, int]:
        """The source of an image, and its index in that source."""

    def key(self, index: int) -> str:
        source, inner = self._find(index)
        return source.key(inner)

    def location(self, index: int) -> str:
        source, inner = self._find(index)
        return source.location(inner)

    def file_of(self, index: int) -> Path | None:
        source, inner = self._find(index)
        return source.file_of(inner)

    def read(self, index: int) -> bytes:
        source, inner = self._find(index)
        return source.read(inner)

    def crop(self, index: int) -> NDArray[np.uint8]:
        source, inner = self._find(index)
        return source.crop(inner)


class WrappedSource(DerivedSource):
    """The images of another source, of which a subclass changes something."""

    def __init__(self, source: Source) -> None:
        self.name, self.other_files = source.name, source.other_files
        self.labels, self.identities = source.labels, source.identities
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def _find(self, index: int) -> tuple[Source, int]:
        return self._source, index


class Relabeled(WrappedSource):
    """A source whose identities are renamed, ``(C,)``; those with the same name are merged.

    ``prefixes`` ``(C,)`` of the identities' file names keep these unique in merged identities; they may be "".
    """

    def __init__(self, source: Source, names: Sequence[str], prefixes: Sequence[str]) -> None:
        assert source.labels is not None
        super().__init__(source)
        self._prefixes = list(prefixes)
        self.identities = sorted(set(names))
        number = {name: label for label, name in enumerate(self.identities)}
        self.labels = np.array([number[name] for name in names], dtype=np.int64)[source.labels]

    def key(self, index: int) -> str:
        assert self._source.labels is not None
        prefix = self._prefixes[self._source.labels[index]]
        key = PurePosixPath(self._source.key(index))
        return str(key.with_name(prefix + key.name)) if prefix else str(key)


class Subset(DerivedSource):
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

    def _find(self, index: int) -> tuple[Source, int]:
        return self._source, int(self._indices[index])

    def crop_identity(self) -> str | None:
        inner = self._source.crop_identity()
        return f"{inner} rows {hashlib.sha256(self._indices.tobytes()).hexdigest()}" if inner else inner
