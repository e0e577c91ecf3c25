"""Image files: a folder by identity, a flat folder, a list file."""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.datasets.source import Source
from facerts.errors import DataError, ImageError
from facerts.images import IMAGE_SUFFIXES, MAX_BYTES, decode
from facerts.images.align import align
from facerts.io.console import warn
from facerts.io.files import read_file, reading, regular

# Of Synology, macOS, QNAP and Windows; others, such as .thumbnails, .@__thumb and .Trashes, are hidden.
_OF_SYSTEMS = frozenset(("@eaDir", "@Recycle", "#recycle", "__MACOSX", "$RECYCLE.BIN", "lost+found"))


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
                    raise DataError(f"{self.location(index)}: {size:,} bytes are more than the limit of {MAX_BYTES:,}")
                return file.read()
        except OSError as error:
            raise DataError(f"{self.location(index)}: cannot be read ({error.strerror})") from error
        except ValueError as error:
            raise DataError(f"{self.location(index)}: not a valid file name ({error})") from error


class LandmarkedFiles(Files):
    """Image files below a folder, each with the five landmarks of its face, ``(N, 5, 2) float32`` in all.

    They are x and y in pixels: eyes, nose, corners of the mouth, left to right in the image.
    """

    def __init__(self, name: str, root: Path, keys: Sequence[str], points: ArrayLike) -> None:
        super().__init__(name, root, keys, None)
        self.points: NDArray[np.float32] = np.asarray(points, dtype=np.float32)
        if self.points.shape != (len(keys), 5, 2):
            raise ValueError(f"{len(keys)} images need points of shape ({len(keys)}, 5, 2)")

    def crop(self, index: int) -> NDArray[np.uint8]:
        """The image aligned by its landmarks, ``(112, 112, 3) uint8`` RGB."""
        where = self.location(index)
        image = decode(self.read(index), where=where)
        try:
            return align(image, self.points[index])
        except ImageError as error:
            raise ImageError(f"{where}: cannot be aligned, {error}") from error

    def crop_identity(self) -> str:
        return f"landmarks {hashlib.sha256(self.points.tobytes()).hexdigest()}"

    def face_size(self, index: int) -> float:
        """Distance between the eyes in pixels, before alignment."""
        left, right = self.points[index, :2]
        return float(np.hypot(*(right - left)))


def open_folder(path: Path) -> Files:
    """Open a folder with a subfolder for each identity, or a flat folder of images.

    Images are ordered by path. Files whose names are not those of images are skipped. What has the name of an image and
    is no folder counts as one, such as a broken link; the error comes when it is read.
    """
    found = _walk(path, links=False)
    keys = [os.path.join(below, name) for below, names in found for name in filter(is_image_name, names)]
    flat = sorted(key for key in keys if os.sep not in key)
    nested = sorted((key for key in keys if os.sep in key), key=lambda key: key.replace(os.sep, "\0"))
    if flat and nested:
        raise DataError(
            f"{path} contains both images and subfolders with images; "
            "use either one subfolder for each identity, or images only"
        )
    if not flat and not nested:
        raise DataError(f"{path}: no images found ({', '.join(sorted(IMAGE_SUFFIXES))})")
    if flat:
        return Files(path.name, path, flat, None)
    return Files(path.name, path, nested, [key.split(os.sep, 1)[0] for key in nested])


def open_tree(path: Path) -> Files:
    """Open all images below a folder, ordered by path, without identities."""
    keys: list[str] = []
    other_files = 0
    for below, names in _walk(path):
        images = [name for name in names if is_image_name(name)]
        keys += [os.path.join(below, name) for name in images]
        other_files += len(names) - len(images)
    if not keys:
        suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
        others = f", only {other_files:,} other file{'s' * (other_files > 1)}" if other_files else ""
        raise DataError(f"{path}: no images found ({suffixes}){others}")
    return Files(path.name, path, sorted(keys), None, other_files=other_files)


def _walk(path: Path, *, links: bool = True) -> Iterator[tuple[str, list[str]]]:
    """Every folder below a path, relative to it, with the names of its files; not those that systems make.

    Links to folders are followed, but each folder is visited only once; without ``links``, only those directly below.
    """
    seen: set[tuple[int, int]] = set()
    skipped: dict[str, int] = {}
    for root, folders, names in os.walk(path, onerror=_refuse, followlinks=True):
        below = "" if root == str(path) else os.path.relpath(root, path)
        status = os.stat(root)
        if links and (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        left_out = {name for name in folders if name in _OF_SYSTEMS or name.startswith(".")}
        for name in left_out:
            inside = [each for _, _, files in os.walk(os.path.join(root, name)) for each in files]
            skipped[os.path.join(below, name)] = len([*filter(is_image_name, inside)])
        if below and not links:
            left_out |= {name for name in folders if os.path.islink(os.path.join(root, name))}
        folders[:] = sorted({*folders} - left_out)
        yield below, names
    skipped = {folder: images for folder, images in skipped.items() if images}
    if images := sum(skipped.values()):
        warn(
            f"{path}: skipped {images:,} image{'s' * (images > 1)} in {len(skipped):,} "
            f"folder{'s' * (len(skipped) > 1)} of thumbnails, of deleted files or hidden, such as {min(skipped)}; "
            "give a folder by itself to read it"
        )


def _refuse(error: OSError) -> None:
    raise DataError(
        f"{error.filename}: cannot be opened ({error.strerror}); make it readable or move it elsewhere"
    ) from error


def open_list(path: Path, *, complete: bool = True) -> Files:
    """Open a list file: a text file with the path of an image on each line, relative to the list's own folder.

    File names need not be valid UTF-8; a line's bytes are taken as the bytes of the file's name. Not ``complete``, the
    error for a missing file comes only when it is read.
    """
    with reading(path):
        content = read_file(path)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path}: the list is UTF-16 text; save it as UTF-8")
    lines = [line.strip() for line in content.removeprefix(codecs.BOM_UTF8).splitlines()]
    keys = [line.decode("utf-8", "surrogateescape") for line in lines if line]
    if not keys:
        raise DataError(f"{path}: the list is empty")
    if not complete and not any(os.path.isfile(path.parent / key) for key in keys if "\0" not in key):
        raise DataError(f"{path}: a list has the path of an image on each line, and no line of this one names a file")
    for number, key in enumerate(keys if complete else [], 1):
        if not os.path.isfile(path.parent / key):
            raise DataError(f"{path}, line {number}: no file {path.parent / key}")
    return Files(path.stem, path.parent, keys, None)


def is_image_name(name: str) -> bool:
    """Whether a file's name is that of an image: by its suffix, and not hidden."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES and not name.startswith(".")
