"""Tar shards, members indexed by offset and read like records."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from facerts.data.folder import PICTURE_SUFFIXES
from facerts.data.reader import FileReader
from facerts.data.source import Source
from facerts.errors import DataError


class TarShard(Source):
    """One uncompressed tar file of ``IDENTITY/IMAGE.jpg``, or of ``IMAGE.jpg`` without identities.

    Raises:
        DataError: no tar file, compressed, truncated, or without pictures.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._reader = FileReader(path)
        self._keys: list[str] = []
        offsets: list[int] = []
        sizes: list[int] = []
        try:
            with tarfile.open(path, "r:") as archive:
                for member in archive:
                    if member.isfile() and PurePosixPath(member.name).suffix.lower() in PICTURE_SUFFIXES:
                        self._keys.append(member.name)
                        offsets.append(member.offset_data)
                        sizes.append(member.size)
        except tarfile.TarError as error:
            raise DataError(f"{path}: not a readable uncompressed tar file ({error})") from error
        if not self._keys:
            raise DataError(f"{path}: no pictures in this tar file")
        self._offsets: NDArray[np.int64] = np.array(offsets, dtype=np.int64)
        self._sizes: NDArray[np.int64] = np.array(sizes, dtype=np.int64)
        last = int(self._offsets[-1] + self._sizes[-1])
        if last > self._reader.size:
            raise DataError(
                f"{path}: truncated, {self._keys[-1]} would end at byte {last} of {self._reader.size}"
            )
        folders = [PurePosixPath(key).parts[:-1] for key in self._keys]
        self.labels, self.identities = None, ()
        if all(folders):
            names, labels = np.unique([parts[-1] for parts in folders], return_inverse=True)
            self.identities, self.labels = [str(name) for name in names], labels.astype(np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    def key(self, index: int) -> str:
        return self._keys[index]

    def location(self, index: int) -> str:
        return f"{self._reader.path}/{self._keys[index]}"

    def read(self, index: int) -> bytes:
        return self._reader.read(int(self._offsets[index]), int(self._sizes[index]), self._keys[index])
