"""The file of a gallery, which other programs read too: arrays of numbers and text, without Python objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError, Error
from facerts.galleries.enroll import SEPARATOR, Enrollments
from facerts.galleries.gallery import Gallery
from facerts.io.files import atomic_write
from facerts.io.npz import read_npz
from facerts.scoring.prepare import storable
from facerts.scoring.reasons import REASONS, in_order

Arrays = dict[str, NDArray[Any]]

FORMAT = "facerts.gallery/1"
# Arrays by name, with the kinds and the number of axes that they must have.
ARRAYS = {
    "format": ("U", 0),
    "model": ("U", 0),
    "model_sha256": ("U", 0),
    "people": ("U", 1),
    "templates": ("f", 2),
    "person": ("iu", 1),
    "path": ("U", 1),
    "embedding": ("f", 2),
    "quality": ("f", 1),
    "percentile": ("f", 1),
    "reasons": ("U", 1),
}
PER_IMAGE = ("person", "embedding", "quality", "percentile", "reasons")
# Images may take MAX_BYTES of memory plus MAX_RATIO times the file, for embeddings hardly compress. The time to compare
# each image with all others is bounded by that too.
MAX_BYTES = 8 << 20
MAX_RATIO = 8
# Bytes of an image besides its embedding and texts: its numbers, and Python's objects.
IMAGE_BYTES = 768
# Numbers of an embedding; those of recognizers have 128 to 2,048.
MAX_SIZE = 4096


def write_gallery(path: str | Path, gallery: Gallery) -> None:
    """Write a gallery file, which appears only when it is complete.

    Raises:
        Error: the name does not end in .npz, or the gallery could not be read again.
        WriteError: the file cannot be written.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise Error(f"{path}: a gallery is written as .npz; choose a file with that suffix")
    images = gallery.enrollments
    arrays = {
        "format": np.array(FORMAT),
        "model": np.array(gallery.model),
        "model_sha256": np.array(gallery.model_sha256),
        "people": gallery.people,
        "templates": gallery.templates,
        "person": gallery.row.astype(np.int32),
        "path": images.path,
        "embedding": images.embedding,
        "quality": images.quality,
        "percentile": images.percentile,
        "reasons": images.reasons,
    }
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        if _excess(arrays, file.tell()):
            # Images that repeat themselves compress too well for a reader to believe in them.
            file.seek(0)
            file.truncate()
            np.savez(file, **arrays)  # type: ignore[arg-type]
        if excess := _excess(arrays, file.tell()):
            raise Error(f"{path}: nothing was written, as the gallery could not be read again: {excess}")


def read_gallery(path: str | Path) -> Gallery:
    """Read a gallery file; see docs/galleries.md for its format.

    Templates follow from the images, so those in the file, which are for other programs, are not used.

    Raises:
        DataError: the file cannot be read, or is not a gallery.
    """
    path = Path(path)
    arrays = read_npz(path)
    if str(arrays.get("format")) != FORMAT:
        raise DataError(f"{path}: not a gallery of format {FORMAT}; facerts gallery build writes one")
    problem = _problem(arrays, path.stat().st_size)
    if problem:
        raise DataError(f"{path}: a broken gallery: {problem}; build it again")
    enrollments = Enrollments(
        arrays["people"][arrays["person"]],
        np.array([storable(path) for path in arrays["path"].tolist()], dtype=str),
        arrays["embedding"].astype(np.float32),
        arrays["quality"].astype(np.float32),
        arrays["percentile"].astype(np.float32),
        arrays["reasons"],
    )
    try:
        return Gallery.from_enrollments(str(arrays["model"]), str(arrays["model_sha256"]), enrollments)
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


def _problem(arrays: Arrays, file_size: int) -> str:
    """What contradicts the format; empty if nothing does."""
    for name, (kinds, axes) in ARRAYS.items():
        if name not in arrays:
            return f"there is no array {name!r}"
        if arrays[name].dtype.kind not in kinds or arrays[name].ndim != axes:
            return f"the array {name!r} is {arrays[name].ndim}-dimensional {arrays[name].dtype}"
    images, people, size = len(arrays["path"]), len(arrays["people"]), arrays["embedding"].shape[1]
    if not images or not size:
        return "it has no images"
    if any(len(arrays[name]) != images for name in PER_IMAGE):
        return "its arrays of images differ in length"
    if arrays["templates"].shape != (people, size):
        return f"its templates are {arrays['templates'].shape}, not {(people, size)}"
    if people > images:
        return "a person has no image"
    if excess := _excess(arrays, file_size):
        return excess
    # Compared as they are, because negative rows would count from the end.
    if arrays["person"].min() < 0 or arrays["person"].max() >= people:
        return "an image is of a person that is not listed"
    if len(np.unique(arrays["people"])) != people or len(np.unique(arrays["person"])) != people:
        return "a person is listed twice, or has no image"
    norms = np.linalg.norm(arrays["embedding"].astype(np.float64), axis=1)
    if not np.all(np.abs(norms - 1) < 1e-3):
        return "an embedding is not of unit length"
    if np.isinf(arrays["quality"]).any() or np.isinf(arrays["percentile"]).any():
        return "a quality is infinite"
    for text in np.unique(arrays["reasons"]).tolist():
        names = text.split(SEPARATOR) if text else []
        if list(in_order(set(names) & set(REASONS))) != names:
            return f"the reasons of an image are {text[:100]!r}"
    return ""
