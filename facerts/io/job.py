"""Long work that survives an interruption: ``Job`` goes on where it was, ``staged`` appears whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from facerts.errors import DataError, Error
from facerts.io.files import atomic_write, locked, read_file, reading, refuse_link, remove_unfinished, writing
from facerts.io.json_file import read_json

if TYPE_CHECKING:
    from typing_extensions import Self

Part = TypeVar("Part")
# Size in bytes and modification time in nanoseconds; None for a missing file.
FileState = tuple[int, int] | None


class Job:
    """The finished parts of long work, so that an interrupted run goes on where it was.

    Each part is a file in a folder that is removed at the end; ``job.json`` in it has the settings of the run.

    Args:
        folder: where parts are kept; it belongs to the job alone.
        settings: everything that the parts depend on, by name; must be JSON serializable.
        suffix: of the files of the parts.
        out: what the parts become, which is locked from ``begin`` until ``close`` or the end of the ``with`` block;
            None if the caller has locked it.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], suffix: str, out: Path | None = None) -> None:
        self.folder = folder
        self.settings = dict(settings)
        self._suffix = suffix
        self._out = out
        self._file = folder / "job.json"
        self._lock = ExitStack()
        self._damaged: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock; finished parts stay."""
        self._lock.close()

    def begin(self, *, resume: bool, anew: bool = False) -> list[str]:
        """Lock the result, and create the folder or check the one that an earlier run left.

        Without ``resume``, finished parts are an error; with it, so are those of a run with other settings, unless the
        job begins ``anew``, without them. Returns the problem of each damaged part; these are removed, and done again.
        """
        with ExitStack() as lock:
            if self._out is not None:
                lock.enter_context(locked(self._out))
            refuse_link(self.folder)
            remove_finished(self.folder)
            remove_unfinished(self.folder)
            if anew and self.different():
                self.remove()
            # A run without finished parts has nothing to lose.
            if not (self._file.is_file() and self.finished()):
                self._start()
            elif not resume:
                raise Error(
                    f"{self.folder} has {len(self.finished())} finished parts of an unfinished run; continue it with "
                    "--resume, or delete the folder"
                )
            elif different := self.different():
                raise Error(
                    f"{self.folder} is from a run with different settings ({', '.join(different)}); use the original "
                    "settings, or delete the folder"
                )
            self._check()
            self._lock = lock.pop_all()
        return self._damaged

    def _start(self) -> None:
        """Begin without finished parts."""
        if not self._file.is_file() and self.folder.exists() and any(self.folder.iterdir()):
            raise Error(f"{self.folder} exists but is not from an unfinished run; move it elsewhere")
        with atomic_write(self._file, "w") as file:
            json.dump(self.settings, file, indent=1)

    def _check(self) -> None:
        """Check what an earlier run left, see ``intact``."""

    def different(self) -> list[str]:
        """The names of settings that an unfinished run had otherwise."""
        if not self._file.is_file():
            return []
        try:
            earlier = read_json(self._file)
        except DataError as error:
            raise DataError(f"{error}; delete the folder to start over") from error
        if not isinstance(earlier, dict):
            raise DataError(f"{self._file}: not the settings of a run; delete the folder to start over")
        return [name for name, value in self.settings.items() if earlier.get(name) != value]

    def part(self, number: int) -> Path:
        """The file of a part."""
        return self.folder / f"{number:09d}{self._suffix}"

    def finished(self) -> set[int]:
        """The numbers of the finished parts."""
        files = (path for path in self.folder.glob(f"[0-9]*{self._suffix}") if path.is_file())
        return {int(path.stem) for path in files if path.stem.isdecimal()}

    def put(self, number: int, content: bytes) -> None:
        """Keep a part, with the SHA-256 of its number and content; when this returns it survives a power failure."""
        with atomic_write(self.part(number)) as file:
            file.write(content + b"\n" + _checksum(number, content))

    def content(self, number: int) -> bytes:
        """What was kept of a part; a ``DataError`` if it is damaged or missing."""
        path = self.part(number)
        with reading(path):
            content, _, checksum = read_file(path).rpartition(b"\n")
        if checksum != _checksum(number, content):
            raise DataError(f"{path}: damaged, the checksum does not match")
        return content

    def intact(self, read: Callable[[int], Part]) -> Iterator[tuple[int, Part]]:
        """Each finished part as ``read`` reads it; those that it finds damaged are removed."""
        for number in sorted(self.finished()):
            try:
                part = read(number)
            except DataError as error:
                self.part(number).unlink()
                self._damaged.append(f"{error}; what it had is done again")
            else:
                yield number, part

    def remove(self) -> None:
        """Remove all parts, when they are done or not needed, and release the lock."""
        # Renamed first, because a half-deleted folder could neither be resumed nor ignored.
        with writing(self._out or self.folder):
            os.replace(self.folder, _finished(self.folder))
            shutil.rmtree(_finished(self.folder))
        self.close()


def _checksum(number: int, content: bytes) -> bytes:
    return hashlib.sha256(b"%d\n%b" % (number, content)).hexdigest().encode()


def remove_finished(folder: Path) -> None:
    """Remove what a run that was killed at its very end had not removed of its parts."""
    refuse_link(_finished(folder))
    if _finished(folder).exists():
        shutil.rmtree(_finished(folder))


def _finished(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.finished")


def file_state(path: str | Path | None) -> FileState:
    """What a file is known by, to notice a change; None if there is none, or its name is one that no file can have."""
    try:
        status = os.stat(path) if path is not None else None
    except (OSError, ValueError):
        return None
    return None if status is None else (status.st_size, status.st_mtime_ns)


@contextmanager
def staged(paths: Sequence[Path]) -> Iterator[dict[Path, Path]]:
    """Write new files and folders in hidden folders beside them, from where they are renamed, in order, at the end.

    Yields:
        The temporary path to write to for each path; a path that the block does not write does not appear. Beside it
        is room for what the work itself needs.

    An error leaves nothing behind; a killed process leaves hidden folders (``.NAME.part``), which the next process that
    writes the same path removes. Nothing is overwritten.
    """
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise Error(f"{path} is named twice; choose different paths")
        if os.path.lexists(path):
            raise Error(f"{path} is there already; remove it, or choose another path")
    with ExitStack() as stack:
        temporary = {path: stack.enter_context(_hidden(path)) / path.name for path in paths}
        yield temporary
        for path in paths:
            if temporary[path].exists():
                with writing(path):
                    temporary[path].rename(path)


@contextmanager
def _hidden(path: Path) -> Iterator[Path]:
    """An empty hidden folder beside a path, locked for this process and removed when the block ends."""
    folder = path.with_name(f".{path.name}.part")
    with locked(path):
        refuse_link(folder)
        with writing(path):
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
