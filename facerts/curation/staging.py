"""Write new files and folders in hidden folders; they appear together when complete and never replace old ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from facerts.errors import Error
from facerts.io.files import locked, refuse_link, writing


class Staging:
    """The temporary paths of files and folders that are being written."""

    def __init__(self, parts: dict[Path, Path]) -> None:
        self._parts = parts

    def temporary(self, path: Path) -> Path:
        """The path to write to instead of a final path."""
        return self._parts[path] / path.name

    @property
    def scratch(self) -> Path:
        """A folder for temporary files, on the disk of the first final path."""
        folder = next(iter(self._parts.values())) / "scratch"
        folder.mkdir(exist_ok=True)
        return folder


@contextmanager
def staged(paths: Sequence[Path]) -> Iterator[Staging]:
    """Write files and folders beside their final paths; they are renamed, in order, when the ``with`` block ends.

    A path that the block does not write does not appear. An error leaves nothing behind; a killed process leaves
    hidden folders (``.NAME.part``), which the next process that writes the same path removes.
    """
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise Error(f"{path} is named twice; choose different paths")
        if os.path.lexists(path):
            raise Error(f"{path} exists and is not overwritten; remove it, or choose another path")
    with ExitStack() as stack:
        staging = Staging({path: stack.enter_context(_part(path)) for path in paths})
        yield staging
        for path in paths:
            if staging.temporary(path).exists():
                with writing(path):
                    staging.temporary(path).rename(path)


@contextmanager
def _part(path: Path) -> Iterator[Path]:
    """An empty hidden folder beside a path, locked for this process and removed when the block ends."""
    part = path.with_name(f".{path.name}.part")
    with locked(path):
        refuse_link(part)
        with writing(path):
            part.mkdir(parents=True, exist_ok=True)
            _clear(part)
        try:
            yield part
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _clear(folder: Path) -> None:
    for entry in list(folder.iterdir()):
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
