"""Atomic writes that survive a power cut (write to a temporary file, sync, rename), locks, and hashing."""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import re
import socket
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from facerts.errors import DataError, Error, LockedError, WriteError

# What to do about an error; about every other one, to free up space.
ADVICE = {
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOTDIR: "a file is where a folder should be, so choose another location",
    errno.EEXIST: "a file is where a folder should be, so choose another location",
    errno.EACCES: "choose a location that you may write to",
    errno.EPERM: "choose a location that you may write to",
    errno.EROFS: "choose a location that you may write to",
}

# pathlib makes one slash of two.
_ADDRESS = re.compile(r"(https?|ftp|s3|gs|file):/", re.IGNORECASE)

# What ``tempfile`` puts between the name of a file and that of what is not finished of it.
_UNFINISHED = ".????????.part"

# File descriptors of the locks that this process holds.
_held: set[int] = set()


def address_problem(path: str | Path) -> str:
    """Why a path cannot be opened if it is an address on a network; otherwise an empty string."""
    return f"{path} is an address; download it first and give the file" if _ADDRESS.match(str(path)) else ""


@contextmanager
def writing(path: str | Path, *, advice: str = "") -> Iterator[None]:
    """Turn an OSError of the block into an error that names what is written, with ``advice`` or the usual one."""
    path = Path(path)
    try:
        yield
    except OSError as error:
        # An error that names an unrelated file comes from reading the input, not from this write.
        if error.filename is not None and not _belongs_to(Path(os.fsdecode(error.filename)), path):
            raise
        advice = advice or ADVICE.get(error.errno or 0, "free up space or choose another location")
        raise WriteError(f"{path}: cannot be written ({error.strerror or error}); {advice}") from error


@contextmanager
def reading(path: str | Path, error: type[Error] = DataError) -> Iterator[None]:
    """Turn an OSError of the block into an error that names what is read."""
    try:
        yield
    except OSError as reason:
        raise error(f"{path}: cannot be read ({reason.strerror})") from reason


@contextmanager
def os_errors() -> Iterator[None]:
    """Raise the OSError of a file that a C++ library writes to, in place of the RuntimeError it makes of that error."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _belongs_to(file: Path, path: Path) -> bool:
    """Whether a file is the one being written, inside or above it, or its temporary or lock file."""
    if file.is_relative_to(path) or path.is_relative_to(file):
        return True
    return any(part.startswith(f".{path.name}.") for part in file.parts)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, which is deleted when the block ends."""
    with (
        tempfile.TemporaryDirectory() as folder,
        writing(folder, advice="free up space or set TMPDIR to another folder"),
    ):
        yield Path(folder)


def check_writable(path: str | Path) -> None:
    """Check before long work that a file can be written, as far as permissions tell; nothing is created."""
    path = Path(path)
    if path.is_dir():
        raise Error(f"{path} is a folder; give a file to write")
    with writing(path):
        folder = next(parent for parent in Path(os.path.abspath(path)).parents if parent.exists())
        if not os.access(folder, os.W_OK | os.X_OK):
            number = errno.EACCES if folder.is_dir() else errno.ENOTDIR
            raise OSError(number, os.strerror(number))


@contextmanager
def atomic_write(path: str | Path, mode: str = "wb", *, sync_name: bool = True, advice: str = "") -> Iterator[IO[Any]]:
    """Open a file that appears at ``path`` only when the block ends without an error.

    An interrupted writer leaves the old file or none, never a partial one. Missing parent folders are created. With
    ``sync_name`` the folder is synced, too, so that the file's name is on disk. A caller that writes many files can
    pass False and call ``sync_names`` once at the end, which halves the time.
    """
    path = Path(path)
    if path.is_dir():
        raise Error(f"{path} is a folder; give a file to write")
    # File names may contain bytes that are not valid UTF-8; these are written as backslash escapes.
    encoding, errors = (None, None) if "b" in mode else ("utf-8", "backslashreplace")
    with writing(path, advice=advice):
        make_folder(path.parent)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        try:
            # mkstemp creates private files; give the file the permissions that the umask allows for new files.
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
        if sync_name:
            _sync_folder(path.parent)


def remove_unfinished(path: Path) -> None:
    """Remove what killed processes had not finished writing of a file, or of any in a folder.

    Nobody else may be writing there.
    """
    named = f".{glob.escape(path.name)}{_UNFINISHED}"
    with writing(path):
        for part in path.rglob(f".*{_UNFINISHED}") if path.is_dir() else path.parent.glob(named):
            part.unlink(missing_ok=True)


def sync_names(files: Iterable[Path]) -> None:
    """Sync the folders of files, so that the files' names are on disk."""
    for folder in dict.fromkeys(file.parent for file in files):
        _sync_folder(folder)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, and sync each so that a power cut does not remove it."""
    if path.is_dir():
        return
    if path.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    _sync_folder(path.parent)


@contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Keep other processes from writing to a file or folder until the block ends.

    The lock is the kernel's (``flock``), on a hidden file beside the path (``.NAME.lock``), so it is released whenever
    the process ends, in whatever way. The lock file is removed at the end of the block, and so is its folder if it was
    created for the lock and is empty. A lock file left by a killed process locks nothing, and what such a process had
    not finished writing is removed. Paths in the same folder are locked independently.
    """
    path = Path(os.path.abspath(path))
    lock = path.with_name(f".{path.name}.lock")
    created_folder = not lock.parent.is_dir()
    with writing(path):
        handle = _lock(path, lock)
    _held.add(handle)
    try:
        with writing(path):
            os.ftruncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        remove_unfinished(path)
        yield
    finally:
        if handle in _held:
            lock.unlink(missing_ok=True)
            if created_folder:
                with suppress(OSError):
                    lock.parent.rmdir()
            _held.remove(handle)
            os.close(handle)


def refuse_link(path: Path) -> None:
    """Check that a name that belongs to facerts is not a link: what it points to would be changed or deleted."""
    if path.is_symlink():
        raise WriteError(f"{path} is a link, and what it points to could be overwritten; remove the link")


def regular(path: str, flags: int) -> int:
    """An opener for ``open`` of what others name: an OSError unless it is a file, as a pipe could keep it waiting."""
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "a pipe or a device, not a file", path)


def read_file(path: str | Path) -> bytes:
    """The content of a file; an OSError if it cannot be read, or is something else."""
    with open(path, "rb", opener=regular) as file:
        return file.read()


def sha256_file(path: str | Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb", opener=regular) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _lock(path: Path, lock: Path) -> int:
    """Open and lock the lock file, and return its file descriptor."""
    while True:
        make_folder(lock.parent)
        handle = _open_lock(lock)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 200).decode(errors="replace") or "another process"
            os.close(handle)
            raise LockedError(f"{path}: {holder} is writing it; wait until it is done or choose another path") from None
        except OSError:
            os.close(handle)
            raise
        if _is_linked(handle, lock):
            return handle
        # The previous holder has just removed the file; try again with a new one.
        os.close(handle)


def _open_lock(lock: Path) -> int:
    """Open or create a lock file, but no file that has another name too, because taking the lock empties it."""
    try:
        # A pipe that nobody reads would keep a blocking open waiting.
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
    else:
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
            return handle
        os.close(handle)
    raise WriteError(f"{lock} has the name of a lock, but is a link or not a file; remove it or choose another path")


def _is_linked(handle: int, path: Path) -> bool:
    """Whether an open file is still the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some file systems do not support syncing folders and persist names in their own way.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _release_in_child() -> None:
    """Close the inherited locks: a forked child, such as a decoding worker, may outlive its parent."""
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_release_in_child)
