"""Tar shards, whose members are indexed by offset and read like records."""

from __future__ import annotations

import re
import tarfile
from array import array
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np

from facerts.datasets.file_reader import FileReader
from facerts.datasets.source import Source
from facerts.errors import DataError
from facerts.images import IMAGE_SUFFIXES
from facerts.io.files import regular

# Maximum size of a member's headers, including its long name.
MAX_HEADER_BYTES = 1 << 20
MAX_DIGITS = 100
MAX_OFFSET = 1 << 62


class TarShard(Source):
    """An uncompressed tar file of ``IDENTITY/IMAGE.jpg``, or of ``IMAGE.jpg`` without identities.

    Each member takes 32 bytes of memory plus the length of its name.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._reader = FileReader(path)
        names, ends, offsets, sizes, labels = bytearray(), array("q"), array("q"), array("q"), array("q")
        numbers: dict[str, int] = {}
        try:
            for member in _members(path):
                name = PurePosixPath(member.name)
                if member.isfile() and name.suffix.lower() in IMAGE_SUFFIXES:
                    self._check(member)
                    names += member.name.encode("utf-8", "surrogateescape")
                    ends.append(len(names))
                    offsets.append(member.offset_data)
                    sizes.append(member.size)
                    labels.append(numbers.setdefault(name.parent.name, len(numbers)))
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            # tarfile may raise any of these on a malformed header.
            raise DataError(f"{path}: not a readable uncompressed tar file ({error})") from error
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        if not ends:
            raise DataError(f"{path}: no images in this tar file")
        self._names = bytes(names)
        self._ends, self._offsets, self._sizes = (
            np.frombuffer(values, dtype=np.int64) for values in (ends, offsets, sizes)
        )
        self.labels, self.identities = None, ()
        if "" not in numbers:
            self.identities = sorted(numbers)
            ranks = {name: rank for rank, name in enumerate(self.identities)}
            renumbered = np.array([ranks[name] for name in numbers], dtype=np.int64)
            self.labels = renumbered[np.frombuffer(labels, dtype=np.int64)]

    def _check(self, member: tarfile.TarInfo) -> None:
        end = member.offset_data + member.size
        if member.issparse():
            raise DataError(
                f"{self._reader.path}: {member.name} is a sparse member; write the tar file without --sparse"
            )
        if not 0 <= member.size <= end <= self._reader.size:
            raise DataError(
                f"{self._reader.path}: truncated, {member.name} would end at byte {end} of {self._reader.size}"
            )

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


class _Forward:
    """A file for ``tarfile`` to read headers from, which refuses huge reads and backward seeks."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, position: int) -> None:
        if not self.tell() <= position <= MAX_OFFSET:
            raise tarfile.ReadError(f"a member at byte {self.tell()} has an impossible size")
        self._file.seek(position)

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size:,} bytes at byte {self.tell()}")
        data = self._file.read(size)
        # Older versions of tarfile take hours to parse a very long number.
        if size > tarfile.BLOCKSIZE and any(len(run) > MAX_DIGITS for run in re.findall(rb"\d+", data)):
            raise tarfile.ReadError(f"an overlong number in the header before byte {self.tell()}")
        return data


def _members(path: Path) -> Iterator[tarfile.TarInfo]:
    with open(path, "rb", opener=regular) as file, tarfile.open(fileobj=_Forward(file), mode="r:") as archive:  # type: ignore[call-overload]
        for member in archive:
            # tarfile would keep them all, more than a kilobyte of memory for each image.
            archive.members = []
            yield member
