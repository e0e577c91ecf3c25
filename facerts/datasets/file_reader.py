"""Positioned reads from a file, thread-safe and safe across forks and pickling."""

from __future__ import annotations

import os
from pathlib import Path

from facerts.errors import DataError
from facerts.images import MAX_BYTES
from facerts.io.files import reading, regular


class FileReader:
    """Reads ranges of a file; each process opens the file itself on its first read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path):
            self.size = path.stat().st_size
        self._descriptor: int | None = None
        self._process: int | None = None

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Read ``size`` bytes at ``offset``."""
        if size > MAX_BYTES:
            raise DataError(
                f"{self.path}: {what} at byte {offset} has {size:,} bytes, more than the limit of {MAX_BYTES:,}"
            )
        try:
            if self._process != os.getpid():
                self._descriptor, self._process = regular(str(self.path), os.O_RDONLY), os.getpid()
            assert self._descriptor is not None
            data = os.pread(self._descriptor, size, offset)
        except OSError as error:
            raise DataError(f"{self.path}: {what} at byte {offset} cannot be read ({error.strerror})") from error
        if len(data) != size:
            raise DataError(
                f"{self.path}: {what} at byte {offset} needs {size} bytes, but the file ends at byte {self.size}; "
                "it is truncated, copy it again"
            )
        return data

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_descriptor": None, "_process": None}

    def __del__(self) -> None:
        if self._descriptor is not None and self._process == os.getpid():
            os.close(self._descriptor)
