"""Copies of photos, or of their faces, in one folder for each person."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from facerts.datasets.folder import Files
from facerts.errors import DataError
from facerts.io.file_names import safe_path
from facerts.io.files import sync_names
from facerts.people.find_job import crop_name
from facerts.people.people import People
from facerts.people.people_folder import CROPS
from facerts.scoring.copies import write_copy
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
                    data = _read(path, sha256)
                except DataError as error:
                    errors[str(error)] = None
                else:
                    written += write_copy(Path(out), safe_path([person.file_name, name]), data)
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


def _read(path: Path, sha256: str | None) -> bytes:
    """The content of a file, which must have this hash, if any."""
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; copies need the photos where they were, as files; run facerts people find again"
        )
    data = Files(path.name, path.parent, [path.name], None).read(0)
    if sha256 and hashlib.sha256(data).hexdigest() != sha256:
        raise DataError(f"{path}: changed since it was read; run facerts people find again")
    return data
