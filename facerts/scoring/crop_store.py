"""Crops of tracks that have ended, in a file rather than in memory."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.images import CROP_SIZE
from facerts.io.files import writing

SHAPE = (CROP_SIZE, CROP_SIZE, 3)
SIZE = CROP_SIZE * CROP_SIZE * 3


class CropStore:
    """Aligned crops by number, appended to a file.

    Args:
        path: the file, which another run may have begun; None for one that is gone when the store is closed.
        crops: how many crops of that run are kept.
    """

    def __init__(self, path: Path | None = None, crops: int = 0) -> None:
        self.path = path or Path(tempfile.gettempdir())
        with writing(self.path):
            self._file = tempfile.TemporaryFile() if path is None else open(path, "r+b" if crops else "w+b")  # noqa: SIM115
        there = os.fstat(self._file.fileno()).st_size
        if there < crops * SIZE:
            self._file.close()
            raise DataError(f"{self.path}: damaged, crops are missing; delete its folder to start over")
        self._file.truncate(crops * SIZE)
        self._crops = crops
        self._temporary = path is None
        self._free: list[int] = []

    def __len__(self) -> int:
        return self._crops

    def __enter__(self) -> CropStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def put(self, crop: NDArray[np.uint8]) -> int:
        """Store a crop, ``(112, 112, 3) uint8``, and return its number."""
        number = self._free.pop() if self._free else self._crops
        with writing(self.path):
            self._file.seek(number * SIZE)
            self._file.write(np.ascontiguousarray(crop).tobytes())
        self._crops = max(self._crops, number + 1)
        return number

    def discard(self, number: int | None) -> None:
        """Use the place of a crop again, unless another run may continue from an earlier state of the file."""
        if self._temporary and number is not None:
            self._free.append(number)

    def sync(self) -> None:
        """When this returns, the crops survive a power failure."""
        with writing(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())

    def get(self, number: int) -> NDArray[np.uint8]:
        """The crop of a number."""
        self._file.seek(number * SIZE)
        return np.frombuffer(self._file.read(SIZE), dtype=np.uint8).reshape(SHAPE).copy()
