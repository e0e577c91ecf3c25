"""Files saved while scoring: aligned crops, annotated images, and copies of accepted and rejected images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path, PureWindowsPath

from facerts.datasets.folder import Files
from facerts.datasets.source import Source
from facerts.errors import DataError
from facerts.images import decode, encode_jpeg, encode_png, image_suffix
from facerts.io.file_names import safe_path
from facerts.io.files import atomic_write, read_file, remove_unfinished, writing
from facerts.scoring.annotate import annotate
from facerts.scoring.face import Face


@dataclass(frozen=True)
class Copies:
    """The folders to save copies in; None saves none.

    An image is accepted if one of its faces is. An image that could not be read is neither accepted nor rejected; its
    row has the error. Copies keep the names that the images have in their source, if a file can have them (see
    ``safe_path``). If something else of that name exists it is kept, and the copy gets a number after its name: nothing
    is lost, and running again changes nothing.

    Attributes:
        crops: folder for aligned crops, as PNG; the number of the face follows the name of the image.
        accepted: folder for accepted images, unchanged.
        rejected: folder for the other images, unchanged.
        annotated: folder for images with their faces drawn in, as JPEG.
    """

    crops: Path | None = None
    accepted: Path | None = None
    rejected: Path | None = None
    annotated: Path | None = None

    def remove_unfinished(self) -> None:
        """Remove what a killed run had not finished writing; no other may be writing to the folders."""
        for folder in filter(None, vars(self).values()):
            remove_unfinished(folder)

    def save(self, source: Source, index: int, faces: Sequence[Face]) -> list[Path]:
        """Save the copies of an image; returns the files, whose names ``facerts.io.files.sync_names`` makes durable."""
        written = []
        for face in faces:
            if self.crops is not None and face.crop is not None:
                name = _relative_path(source.key(index))
                crop_file = name.with_name(f"{name.stem}_{face.row.face}.png")
                written += write_copy(self.crops, crop_file, encode_png(face.crop))
        if self.annotated is not None and faces[0].row.error is None:
            image = decode(source.read(index), where=source.location(index))
            name = _relative_path(source.key(index))
            jpeg = name if name.suffix.lower() in (".jpg", ".jpeg") else name.with_name(f"{name.name}.jpg")
            annotated = annotate(image, [face.row for face in faces])
            written += write_copy(self.annotated, jpeg, encode_jpeg(annotated))
        folder = self.accepted if any(face.row.accepted for face in faces) else self.rejected
        if folder is not None and faces[0].row.error is None:
            data = source.read(index)
            name = _relative_path(source.key(index))
            copy = name if name.suffix else name.with_suffix(image_suffix(data))
            written += write_copy(folder, copy, data)
        return written


def copy_stored(path: Path, folder: Path, person: str, name: str, sha256: str | None = None) -> list[Path]:
    """Copy an image, whose path a gallery or a folder of people holds, into the subfolder of a person.

    Returns the file written; nothing if an identical one exists.

    Raises:
        DataError: it is no file, such as an image in a tar shard, has gone, or has another hash than ``sha256``.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; copies need the images where they were, as files")
    data = Files(path.name, path.parent, [path.name], None).read(0)
    if sha256 and hashlib.sha256(data).hexdigest() != sha256:
        raise DataError(f"{path}: changed since it was read")
    return write_copy(folder, safe_path([person, name]), data)


def _relative_path(key: str) -> Path:
    """A key as a path that stays inside a folder, whatever a tar file contains, with either kind of slash."""
    path = PureWindowsPath(key)
    return safe_path([part for part in path.parts if part not in ("..", path.anchor)] or ["image"])


def write_copy(folder: Path, name: Path, data: bytes) -> list[Path]:
    """Write a file below a folder, and nowhere else; what is there is kept, and the new one gets a number.

    ``name`` is relative to the folder. Returns the file written; nothing if an identical one exists.
    """
    with writing(folder / name):
        target = folder
        for part in name.parent.parts:
            # A link may lead elsewhere.
            target = _first_free(target / part, or_if=lambda path: path.is_dir() and not path.is_symlink())
        target = _first_free(target / name.name, or_if=lambda path: path.is_file() and read_file(path) == data)
        if target.exists():
            return []
        with atomic_write(target, sync_name=False) as file:
            file.write(data)
        return [target]


def _first_free(path: Path, *, or_if: Callable[[Path], bool]) -> Path:
    """A path, or the first of it with a number after its name, that does not exist or of which something is true."""
    numbered = (path.with_name(f"{path.stem} ({number}){path.suffix}") for number in count(2))
    return next(each for each in chain([path], numbered) if not os.path.lexists(each) or or_if(each))
