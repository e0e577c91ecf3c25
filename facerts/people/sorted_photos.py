"""Copies of photos, or of their faces, in one folder for each person."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from facerts.datasets.folder import Files
from facerts.errors import DataError
from facerts.io.file_names import safe_path
from facerts.io.files import sync_names
from facerts.people.find_job import crop_name
from facerts.people.people import People
from facerts.people.people_folder import CROPS
from facerts.people.people_gallery import shown_people
from facerts.scoring.copies import write_copy
from facerts.scoring.prepare import stored_file


def copy_photos(
    people: People,
    out: str | Path,
    *,
    crops: bool = False,
    named_only: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> list[Path]:
    """Copy photos into one subfolder for each person who is in them; nothing that is there is overwritten.

    A photo of two people is copied twice. An existing file of another content is kept, and the copy gets a number.

    Args:
        people: of ``find_people``, with its corrections.
        out: the folder.
        crops: copy the faces themselves, as aligned crops, instead of the photos.
        named_only: leave out people without a name.
        advance: called after each person.

    Returns:
        The files written.

    Raises:
        DataError: a photo is not a file, such as one in a tar shard, has gone, or has changed since it was read.
        WriteError: a file cannot be written.
    """
    written: list[Path] = []
    for person in shown_people(people, named_only=named_only):
        for row in person.rows.tolist():
            for name, data in _crop(people, row) if crops else _photos(people, row):
                written += write_copy(Path(out), safe_path([person.file_name, name]), data)
        advance()
    sync_names(written)
    return written


def _crop(people: People, row: int) -> list[tuple[str, bytes]]:
    found = people.found
    file = crop_name(str(found.sha256[found.face_image[row]]), int(found.number[row]))
    photo = Path(str(found.path[found.photos_of(row)[0]]))
    return [(f"{photo.stem}_{found.number[row]}.jpg", _read(people.folder / CROPS / file))]


def _photos(people: People, row: int) -> list[tuple[str, bytes]]:
    """Each photo that shows a face, under its name."""
    found = people.found
    copies = []
    for photo in found.photos_of(row).tolist():
        path = stored_file(str(found.path[photo]))
        data = _read(path)
        if hashlib.sha256(data).hexdigest() != found.sha256[found.face_image[row]]:
            raise DataError(f"{path}: changed since it was read; run facerts people find again")
        copies.append((path.name, data))
    return copies


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; copies need the photos where they were, as files; run facerts people find again"
        )
    return Files(path.name, path.parent, [path.name], None).read(0)
