"""The file of a gallery, which other programs read too: arrays of numbers and text, without Python objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError, Error
from facerts.galleries.enrollments import IMAGE_ARRAYS, Enrollments, check_faces
from facerts.io.files import atomic_write
from facerts.io.npz import ArrayType, read_npz, typed_arrays

Arrays = dict[str, NDArray[Any]]

FORMAT = "facerts.gallery/1"
ARRAYS = {
    "model": ArrayType(np.str_),
    "model_sha256": ArrayType(np.str_),
    "people": ArrayType(np.str_, ("people",)),
    "person": ArrayType(np.int64, ("images",), 0, "people"),
    **IMAGE_ARRAYS,
    "templates": ArrayType(np.float32, ("people", "numbers")),
}
# Images may take MAX_BYTES of memory plus MAX_RATIO times the file, for embeddings hardly compress. The time to compare
# each image with all others is bounded by that too.
MAX_BYTES = 8 << 20
MAX_RATIO = 8
# Bytes of an image besides its embedding and texts: its numbers, and Python's objects.
IMAGE_BYTES = 768
# Numbers of an embedding; those of recognizers have 128 to 2,048.
MAX_SIZE = 4096


def write_gallery(path: str | Path, images: Enrollments) -> None:
    """Write a gallery file, which appears only when it is complete."""
    path = Path(path)
    if path.suffix != ".npz":
        raise Error(f"{path}: a gallery is written as .npz; choose a file with that suffix")
    arrays = {
        "format": np.array(FORMAT),
        "model": np.array(images.model),
        "model_sha256": np.array(images.model_sha256),
        "people": images.people,
        "templates": images.templates,
        "person": images.row.astype(np.int32),
        **{name: getattr(images, name) for name in IMAGE_ARRAYS},
    }
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)
        if _excess(arrays, file.tell()):
            # Images that repeat themselves compress too well for a reader to believe in them.
            file.seek(0)
            file.truncate()
            np.savez(file, **arrays)
        if excess := _excess(arrays, file.tell()):
            raise Error(f"{path}: nothing was written, as the gallery could not be read again: {excess}")


def read_gallery(path: str | Path) -> Enrollments:
    """Read a gallery file; see docs/galleries.md for its format.

    Templates follow from the images, so those in the file, which are for other programs, are not used.
    """
    path = Path(path)
    arrays = read_npz(path)
    if str(arrays.get("format")) != FORMAT:
        raise DataError(f"{path}: not a gallery of format {FORMAT}; facerts gallery build writes one")
    try:
        arrays = typed_arrays(arrays, ARRAYS)
        _check(arrays, path.stat().st_size)
        columns = {name: arrays[name] for name in IMAGE_ARRAYS}
        model, sha256 = str(arrays["model"]), str(arrays["model_sha256"])
        person = arrays["people"][arrays["person"]]
        return Enrollments(person, **columns, model=model, model_sha256=sha256).in_order()
    except Error as error:
        raise DataError(f"{path}: a broken gallery: {error}; build it again") from error


def _excess(arrays: Arrays, file_size: int) -> str:
    """Which of a gallery's images are too large, or too many for a file of so many bytes; empty if they are not."""
    images, size = arrays["embedding"].shape
    if size > MAX_SIZE:
        return f"its embeddings have {size:,} numbers, and {MAX_SIZE:,} is the limit"
    texts = sum(arrays[name].itemsize for name in ("people", "path", "reasons"))
    limit = MAX_BYTES + MAX_RATIO * file_size
    if images * (4 * size + texts + IMAGE_BYTES) <= limit:
        return ""
    return (
        f"its {images:,} images, of {size:,} numbers and texts of up to {texts // 4:,} letters, would take more than "
        f"the {limit:,} bytes of memory that a file of {file_size:,} bytes may take"
    )


def _check(arrays: Arrays, file_size: int) -> None:
    """Check what the types of arrays do not say."""
    images, people = len(arrays["path"]), len(arrays["people"])
    if not arrays["embedding"].size:
        raise Error("it has no images")
    if people > images:
        raise Error("a person has no image")
    if excess := _excess(arrays, file_size):
        raise Error(excess)
    if len(np.unique(arrays["people"])) != people or len(np.unique(arrays["person"])) != people:
        raise Error("a person is listed twice, or has no image")
    check_faces(arrays["embedding"], arrays["reasons"])
