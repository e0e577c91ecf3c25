"""Copies of photos, or of their faces, in one folder for each person."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from facerts.errors import DataError
from facerts.io.files import sync_names
from facerts.people.find_job import crop_name
from facerts.people.people import People
from facerts.people.people_folder import CROPS
from facerts.scoring.copies import copy_stored
from facerts.scoring.prepare import stored_file


class Copied(NamedTuple):
    """The files that ``copy_photos`` has written, and what is wrong with each photo that was not copied."""

    written: list[Path]
    errors: list[str]


def copy_photos(people: People, out: str | Path, *, crops: bool = False, named_only: bool = False) -> Copied:
    """Copy photos into one subfolder for each person who is in them; nothing that is there is overwritten.

    A photo of two people is copied twice. An existing file of another content is kept, and the copy gets a number. A
    photo that is not a file, such as one in a tar shard, has gone, or has changed since it was read is an error of its
    own, and the others are copied.

    Args:
        crops: copy the faces themselves, as aligned crops, instead of the photos.
        named_only: leave out people without a name.
    """
    written: list[Path] = []
    errors: dict[str, None] = {}
    for person in people.shown(named_only=named_only):
        for row in person.rows.tolist():
            for name, path, sha256 in [_crop(people, row)] if crops else _photos(people, row):
                try:
                    written += copy_stored(path, Path(out), person.file_name, name, sha256)
                except DataError as error:
                    errors[f"{error}; run facerts people find again"] = None
    sync_names(written)
    return Copied(written, list(errors))


def _crop(people: People, row: int) -> tuple[str, Path, None]:
    """The name of a face's copy and its crop."""
    found = people.found
    file = crop_name(str(found.sha256[found.face_image[row]]), int(found.number[row]))
    photo = Path(str(found.path[found.photos_of(row)[0]]))
    return f"{photo.stem}_{found.number[row]}.jpg", people.folder / CROPS / file, None


def _photos(people: People, row: int) -> list[tuple[str, Path, str]]:
    """The name of the copy of each photo that shows a face, the photo, and what its hash was."""
    found = people.found
    sha256 = str(found.sha256[found.face_image[row]])
    paths = [stored_file(str(found.path[photo])) for photo in found.photos_of(row).tolist()]
    return [(path.name, path, sha256) for path in paths]
