"""New files and folders that appear when all of them are whole, and never in the place of old ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from facerts.errors import Error
from facerts.io.files import locked, writing


class Places:
    """Where to write what is to appear later.

    Args:
        parts: the hidden folder beside each of the places.
    """

    def __init__(self, parts: dict[Path, Path]) -> None:
        self._parts = parts

    def of(self, place: Path) -> Path:
        """The path to write to in place of one that was asked for."""
        return self._parts[place] / place.name

    @property
    def scratch(self) -> Path:
        """A folder on the disk of the first place, for what is needed on the way."""
        folder = next(iter(self._parts.values())) / "scratch"
        folder.mkdir(exist_ok=True)
        return folder


@contextmanager
def new_places(places: Sequence[Path]) -> Iterator[Places]:
    """Let files and folders be written beside their places; they are renamed, in order, when the block ends.

    What the block leaves out does not appear. An error in it leaves nothing; a process that is killed leaves hidden
    folders (``.NAME.part``), which the next one for the same place removes.

    Raises:
        Error: something is in one of the places, or another process is at work for it.
        WriteError: nothing can be written there.
    """
    for number, place in enumerate(places):
        if place in places[:number]:
            raise Error(f"{place} is named for two things; choose different places")
        if os.path.lexists(place):
            raise Error(f"{place} exists and is not overwritten; remove it, or choose another")
    with ExitStack() as stack:
        parts = {place: stack.enter_context(_part(place)) for place in places}
        made = Places(parts)
        yield made
        for place in places:
            if made.of(place).exists():
                with writing(place):
                    made.of(place).rename(place)


@contextmanager
def _part(place: Path) -> Iterator[Path]:
    """An empty hidden folder beside a place, which is this process's alone and goes when the block ends."""
    part = place.with_name(f".{place.name}.part")
    with locked(place):
        with writing(place):
            part.mkdir(parents=True, exist_ok=True)
            _clear(part)
        try:
            yield part
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _clear(folder: Path) -> None:
    for entry in list(folder.iterdir()):
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
