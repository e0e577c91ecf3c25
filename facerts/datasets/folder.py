"""Pictures as files: a folder by identity, a flat folder, a list file."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from facerts.datasets.source import Source
from facerts.errors import DataError
from facerts.images import MAX_BYTES

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})


class Files(Source):
    """Picture files below a folder.

    Args:
        name: for tables and results.
        root: what the keys are relative to.
        keys: the files' paths relative to ``root``.
        identities: each file's identity by name, or None where they are unknown.
        others: how many files beside them are no pictures by their names.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        keys: Sequence[str],
        identities: Sequence[str] | None,
        *,
        others: int = 0,
    ) -> None:
        self.name = name
        self.others = others
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
            # Without a buffer and a Path of its own: half the time of a small file. A pipe must not be waited for.
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
                told = os.fstat(file.fileno())
                if not stat.S_ISREG(told.st_mode):
                    raise DataError(f"{path}: not a file")
                if told.st_size > MAX_BYTES:
                    raise DataError(
                        f"{path}: {told.st_size:,} bytes are more than the limit of {MAX_BYTES:,}"
                    )
                return file.read()
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        except ValueError as error:
            raise DataError(f"{path}: cannot be the name of a file ({error})") from error


def open_folder(path: Path) -> Files:
    """A folder with a folder for each identity, or a flat one with pictures.

    Pictures come in the order of their paths. Files that are no pictures by their names are passed over.

    Raises:
        DataError: there are no pictures in it.
    """
    with os.scandir(path) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    folders = [entry for entry in listed if entry.is_dir()]
    flat = [entry.name for entry in listed if _is_picture(entry.name) and entry.is_file()]
    nested = [
        (folder.name, str(found.relative_to(path)))
        for folder in folders
        for found in sorted(Path(folder.path).rglob("*"))
        if _is_picture(found.name) and found.is_file()
    ]
    if flat and nested:
        raise DataError(
            f"{path} holds pictures both by themselves and in folders; "
            "use a folder for each identity, or pictures alone"
        )
    if not flat and not nested:
        raise DataError(f"{path}: no pictures here ({', '.join(sorted(IMAGE_SUFFIXES))})")
    if flat:
        return Files(path.name, path, flat, None)
    return Files(path.name, path, [key for _, key in nested], [identity for identity, _ in nested])


def open_tree(path: Path) -> Files:
    """Every picture below a folder, in the order of their paths, without identities.

    Raises:
        DataError: there are no pictures in it, or a folder in it cannot be opened.
    """
    keys: list[str] = []
    others = 0
    for root, names in _walk(path):
        pictures = [name for name in names if _is_picture(name)]
        keys += [os.path.relpath(os.path.join(root, name), path) for name in pictures]
        others += len(names) - len(pictures)
    if not keys:
        raise DataError(f"{path}: no pictures here ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return Files(path.name, path, sorted(keys), None, others=others)


def _walk(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Every folder with its files; links are followed, and a folder that several ways lead to comes once.

    Raises:
        DataError: a folder cannot be opened, so that what is in it would be left out unsaid.
    """

    def refuse(error: OSError) -> None:
        raise DataError(
            f"{error.filename}: cannot be opened ({error.strerror}); give it to the user who reads, or move it away"
        ) from error

    seen: set[tuple[int, int]] = set()
    for root, folders, names in os.walk(path, onerror=refuse, followlinks=True):
        told = os.stat(root)
        if (told.st_dev, told.st_ino) in seen:
            folders.clear()
            continue
        seen.add((told.st_dev, told.st_ino))
        folders.sort()
        yield root, names


def open_list(path: Path, *, complete: bool = True) -> Files:
    """A text file with a picture's path on each line, relative to the file's own folder.

    Names of files may have bytes that are no UTF-8; such a line names the file whose name has these bytes.

    Args:
        path: of the list.
        complete: whether all files must be there; otherwise reading one that is not says so.

    Raises:
        DataError: the list cannot be read or is empty, or a file is not there and the list must be complete.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path}: the list is UTF-16 text; save it as UTF-8")
    lines = [line.strip() for line in content.removeprefix(codecs.BOM_UTF8).splitlines()]
    keys = [line.decode("utf-8", "surrogateescape") for line in lines if line]
    if not keys:
        raise DataError(f"{path}: the list is empty")
    for number, key in enumerate(keys if complete else [], 1):
        if not os.path.isfile(path.parent / key):
            raise DataError(f"{path}, line {number}: no file {path.parent / key}")
    return Files(path.stem, path.parent, keys, None)


def _is_picture(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES and not name.startswith(".")
