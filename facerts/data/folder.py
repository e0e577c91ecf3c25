"""Pictures as files: a folder by identity, a flat folder, a list file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from facerts.data.source import Source
from facerts.errors import DataError

PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})


class Files(Source):
    """Picture files below a folder.

    Args:
        name: for tables and results.
        root: what the keys are relative to.
        keys: the files' paths relative to ``root``.
        identities: each file's identity by name, or None where they are unknown.
    """

    def __init__(self, name: str, root: Path, keys: Sequence[str], identities: Sequence[str] | None) -> None:
        self.name = name
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

    def read(self, index: int) -> bytes:
        path = os.path.join(self._root, self._keys[index])
        try:
            # Without a buffer and a Path of its own: half the time of a small file.
            with open(path, "rb", buffering=0) as file:
                return file.read()
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error


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
        raise DataError(f"{path}: no pictures here ({', '.join(sorted(PICTURE_SUFFIXES))})")
    if flat:
        return Files(path.name, path, flat, None)
    return Files(path.name, path, [key for _, key in nested], [identity for identity, _ in nested])


def open_tree(path: Path) -> Files:
    """Every picture below a folder, in the order of their paths, without identities.

    Raises:
        DataError: there are no pictures in it.
    """
    keys = sorted(
        os.path.relpath(os.path.join(root, name), path)
        for root, _, names in os.walk(path)
        for name in names
        if _is_picture(name)
    )
    if not keys:
        raise DataError(f"{path}: no pictures here ({', '.join(sorted(PICTURE_SUFFIXES))})")
    return Files(path.name, path, keys, None)


def open_list(path: Path) -> Files:
    """A text file with a picture's path on each line, relative to the file's own folder.

    Raises:
        DataError: the list is empty or names a file that does not exist.
    """
    keys = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not keys:
        raise DataError(f"{path}: the list is empty")
    for number, key in enumerate(keys, 1):
        if not (path.parent / key).is_file():
            raise DataError(f"{path}, line {number}: no file {path.parent / key}")
    return Files(path.stem, path.parent, keys, None)


def _is_picture(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in PICTURE_SUFFIXES and not name.startswith(".")
