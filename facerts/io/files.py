"""Whole files or none, that outlast a power cut: writing beside the target and renaming, locks, and hashing."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import socket
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from facerts.errors import Error, WriteError

ADVICE = "make room there, or choose another place"

# Open lock files of this process.
_held: set[int] = set()


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
def atomic_write(
    path: str | Path, mode: str = "wb", *, named: bool = True, advice: str = ADVICE
) -> Iterator[IO[Any]]:
    """Open a file that appears under ``path`` only when the block ends without an error.

    An interrupted writer leaves the old file, or none; never half of the new one.

    Args:
        path: of the file; folders above it that are missing are made.
        mode: "wb" or "w".
        named: wait until the file's name, too, is on the disk. Who writes many files leaves that to one call of
            ``sync_names`` in the end, which takes half of the time.

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
        make_folder(path.parent)
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
        if named:
            _sync_folder(path.parent)


def sync_names(files: Iterable[Path]) -> None:
    """Wait until the names of files are on the disk."""
    for folder in dict.fromkeys(file.parent for file in files):
        _sync_folder(folder)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, so that a power cut does not take them away again."""
    if path.is_dir():
        return
    if path.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    _sync_folder(path.parent)


@contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Let no other process write to a file or folder until the block ends.

    The lock is the kernel's, on a hidden file beside the path (``.NAME.lock``), so it ends with its process however
    that ends. The file goes with the block, and so does its folder if it was made for it and is empty; a file that a
    killed process left locks nothing. Two things in one folder do not get into each other's way.

    Raises:
        Error: another process has locked the path.
        WriteError: no file there can be made and locked.
    """
    path = Path(os.path.abspath(path))
    lock = path.with_name(f".{path.name}.lock")
    made = not lock.parent.is_dir()
    with writing(path):
        handle = _lock(path, lock)
    _held.add(handle)
    try:
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        if handle in _held:
            lock.unlink(missing_ok=True)
            if made:
                with suppress(OSError):
                    lock.parent.rmdir()
            _held.remove(handle)
            os.close(handle)


def sha256_file(path: str | Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _lock(path: Path, lock: Path) -> int:
    """The lock file, open and locked."""
    while True:
        make_folder(lock.parent)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 200).decode(errors="replace") or "another process"
            os.close(handle)
            raise Error(f"{path}: {holder} is writing it; wait until it is done, or choose another") from None
        except OSError:
            os.close(handle)
            raise
        if _is_there(handle, lock):
            return handle
        # Whoever had it before has just removed it.
        os.close(handle)


def _is_there(handle: int, path: Path) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some file systems know no such thing, and keep the names in their own way.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _let_go() -> None:
    """A child that was forked, such as a worker that decodes, may outlive its parent: it must not keep the locks."""
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)
