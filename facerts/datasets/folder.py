"""Image files: a folder by identity, a flat folder, a list file."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from facerts.datasets.source import Source
from facerts.errors import DataError
from facerts.images import IMAGE_SUFFIXES, MAX_BYTES
from facerts.io.files import read_file, regular


class Files(Source):
    """Image files below a folder."""

    def __init__(
        self,
        name: str,
        root: Path,
        keys: Sequence[str],
        identities: Sequence[str] | None,
        *,
        other_files: int = 0,
    ) -> None:
        self.name = name
        self.other_files = other_files
        self._root = root
        self._keys = list(keys)
        self.labels, self.identities = None, ()
        if identities is not None:
            names, labels = np.unique(np.array(identities, dtype=object).astype(str), return_inverse=True)
            self.identities, self.labels = [str(name) for name in names], labels.astype(np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    def key(self, index: int) -> str:
        return self._keys[index]

    def location(self, index: int) -> str:
        return str(self._root / self._keys[index])

    def file_of(self, index: int) -> Path:
        return self._root / self._keys[index]

    def read(self, index: int) -> bytes:
        path = os.path.join(self._root, self._keys[index])
        try:
            # Unbuffered and without creating a Path: this halves the time for a small file.
            with open(path, "rb", buffering=0, opener=regular) as file:
                if (size := os.fstat(file.fileno()).st_size) > MAX_BYTES:
                    raise DataError(
                        f"{self.location(index)}: {size:,} bytes are more than the limit of {MAX_BYTES:,}"
                    )
                return file.read()
        except OSError as error:
            raise DataError(f"{self.location(index)}: cannot be read ({error.strerror})") from error
        except ValueError as error:
            raise DataError(f"{self.location(index)}: not a valid file name ({error})") from error


def open_folder(path: Path) -> Files:
    """Open a folder with a subfolder for each identity, or a flat folder of images.

    Images are ordered by path. Files whose names are not those of images are skipped. What has the name of an image and
    is no folder counts as one, such as a broken link; the error comes when it is read.
    """
    _, folders, names = next(os.walk(path, onerror=_refuse))
    flat = sorted(filter(is_image_name, names))
    nested = [(folder, key) for folder in sorted(folders) for key in _images_below(path, folder)]
    if flat and nested:
        raise DataError(
            f"{path} contains both images and subfolders with images; "
            "use either one subfolder for each identity, or images only"
        )
    if not flat and not nested:
        raise DataError(f"{path}: no images found ({', '.join(sorted(IMAGE_SUFFIXES))})")
    if flat:
        return Files(path.name, path, flat, None)
    return Files(path.name, path, [key for _, key in nested], [identity for identity, _ in nested])


def open_tree(path: Path) -> Files:
    """Open all images below a folder, ordered by path, without identities."""
    keys: list[str] = []
    other_files = 0
    for root, names in _walk(path):
        images = [name for name in names if is_image_name(name)]
        keys += [os.path.relpath(os.path.join(root, name), path) for name in images]
        other_files += len(names) - len(images)
    if not keys:
        suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
        others = f", only {other_files:,} other file{'s' * (other_files > 1)}" if other_files else ""
        raise DataError(f"{path}: no images found ({suffixes}){others}")
    return Files(path.name, path, sorted(keys), None, other_files=other_files)


def _images_below(path: Path, folder: str) -> list[str]:
    """The images in a subfolder and its own subfolders, but not those that are links, as paths relative to ``path``."""
    keys: list[str] = []
    for root, _, names in os.walk(path / folder, onerror=_refuse):
        below = os.path.relpath(root, path)
        keys += [os.path.join(below, name) for name in filter(is_image_name, names)]
    return sorted(keys, key=lambda key: key.split(os.sep))


def _walk(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Every folder with the names of its files; links are followed, but each folder is visited only once."""
    seen: set[tuple[int, int]] = set()
    for root, folders, names in os.walk(path, onerror=_refuse, followlinks=True):
        status = os.stat(root)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        yield root, names


def _refuse(error: OSError) -> None:
    raise DataError(
        f"{error.filename}: cannot be opened ({error.strerror}); make it readable or move it elsewhere"
    ) from error


def open_list(path: Path, *, complete: bool = True) -> Files:
    """Open a list file: a text file with the path of an image on each line, relative to the list's own folder.

    File names need not be valid UTF-8; a line's bytes are taken as the bytes of the file's name. Not ``complete``, the
    error for a missing file comes only when it is read.
    """
    try:
        content = read_file(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path}: the list is UTF-16 text; save it as UTF-8")
    lines = [line.strip() for line in content.removeprefix(codecs.BOM_UTF8).splitlines()]
    keys = [line.decode("utf-8", "surrogateescape") for line in lines if line]
    if not keys:
        raise DataError(f"{path}: the list is empty")
    if not complete and not any(os.path.isfile(path.parent / key) for key in keys if "\0" not in key):
        raise DataError(
            f"{path}: a list has the path of an image on each line, and no line of this one names a file"
        )
    for number, key in enumerate(keys if complete else [], 1):
        if not os.path.isfile(path.parent / key):
            raise DataError(f"{path}, line {number}: no file {path.parent / key}")
    return Files(path.stem, path.parent, keys, None)


def is_image_name(name: str) -> bool:
    """Whether a file's name is that of an image: by its suffix, and not hidden."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES and not name.startswith(".")
