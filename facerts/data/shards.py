"""Tar shards, members indexed by offset and read like records."""

from __future__ import annotations

import tarfile
from array import array
from pathlib import Path, PurePosixPath

import numpy as np

from facerts.data.folder import PICTURE_SUFFIXES
from facerts.data.reader import FileReader
from facerts.data.source import Source
from facerts.errors import DataError


class TarShard(Source):
    """One uncompressed tar file of ``IDENTITY/IMAGE.jpg``, or of ``IMAGE.jpg`` without identities.

    A member takes the length of its name and 32 bytes of memory.

    Raises:
        DataError: no tar file, compressed, truncated, or without pictures.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._reader = FileReader(path)
        names, ends, offsets, sizes, labels = bytearray(), array("q"), array("q"), array("q"), array("q")
        numbers: dict[str, int] = {}
        try:
            with tarfile.open(path, "r:") as archive:
                for member in archive:
                    # It would keep them all: more than a kilobyte of memory for each picture.
                    archive.members = []  # type: ignore[attr-defined]
                    name = PurePosixPath(member.name)
                    if member.isfile() and name.suffix.lower() in PICTURE_SUFFIXES:
                        names += member.name.encode("utf-8", "surrogateescape")
                        ends.append(len(names))
                        offsets.append(member.offset_data)
                        sizes.append(member.size)
                        labels.append(numbers.setdefault(name.parent.name, len(numbers)))
        except tarfile.TarError as error:
            raise DataError(f"{path}: not a readable uncompressed tar file ({error})") from error
        if not ends:
            raise DataError(f"{path}: no pictures in this tar file")
        self._names = bytes(names)
        self._ends, self._offsets, self._sizes = (
            np.frombuffer(numbered, dtype=np.int64) for numbered in (ends, offsets, sizes)
        )
        last = int(self._offsets[-1] + self._sizes[-1])
        if last > self._reader.size:
            raise DataError(
                f"{path}: truncated, {self.key(len(self) - 1)} would end at byte {last} of {self._reader.size}"
            )
        self.labels, self.identities = None, ()
        if "" not in numbers:
            self.identities = sorted(numbers)
            places = {name: place for place, name in enumerate(self.identities)}
            renumbered = np.array([places[name] for name in numbers], dtype=np.int64)
            self.labels = renumbered[np.frombuffer(labels, dtype=np.int64)]

    def __len__(self) -> int:
        return len(self._ends)

    def key(self, index: int) -> str:
        row = range(len(self))[index]
        begin = int(self._ends[row - 1]) if row else 0
        return self._names[begin : int(self._ends[row])].decode("utf-8", "surrogateescape")

    def location(self, index: int) -> str:
        return f"{self._reader.path}/{self.key(index)}"

    def file_of(self, index: int) -> Path:
        return self._reader.path

    def read(self, index: int) -> bytes:
        return self._reader.read(int(self._offsets[index]), int(self._sizes[index]), self.key(index))
