"""Whole files or none: writing beside the target and renaming, and hashing."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from facerts.errors import Error, WriteError

ADVICE = "make room there, or choose another place"


@contextmanager
def writing(path: str | Path, *, advice: str = ADVICE) -> Iterator[None]:
    """Name the file or folder that is being written where the system refuses it.

    Args:
        path: of it.
        advice: what the error says that helps.

    Raises:
        WriteError: the disk is full or read-only, or there is a file where a folder is wanted.
    """
    path = Path(path)
    try:
        yield
    except OSError as error:
        # One that names another file comes from what is read meanwhile.
        if error.filename is not None and not _belongs_to(Path(os.fsdecode(error.filename)), path):
            raise
        raise WriteError(f"{path}: cannot be written ({error.strerror or error}); {advice}") from error


def _belongs_to(found: Path, path: Path) -> bool:
    """Whether a file is the one that is written, a folder above it, or holds its place until it is whole."""
    if found.is_relative_to(path) or path.is_relative_to(found):
        return True
    return any(part.startswith(f".{path.name}.") for part in found.parts)


@contextmanager
def atomic_write(path: str | Path, mode: str = "wb", *, advice: str = ADVICE) -> Iterator[IO[Any]]:
    """Open a file that appears under ``path`` only when the block ends without an error.

    An interrupted writer leaves the old file, or none; never half of the new one.

    Raises:
        Error: the path is a folder.
        WriteError: it cannot be written.
    """
    path = Path(path)
    if path.is_dir():
        raise Error(f"{path} is a folder; name a file to write")
    # Names of files may have bytes that are no characters; they are written as JSON would have them.
    encoding, errors = (None, None) if "b" in mode else ("utf-8", "backslashreplace")
    with writing(path, advice=advice):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        try:
            # mkstemp makes files private; a result is as readable as the umask lets any new file be.
            umask = os.umask(0)
            os.umask(umask)
            os.fchmod(handle, 0o666 & ~umask)
            with os.fdopen(handle, mode, encoding=encoding, errors=errors) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def sha256_file(path: str | Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
