"""Where a gallery is kept: in memory, in a file, or, in ``postgres_store``, in a database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError, Error
from facerts.galleries.enrollments import IMAGE_ARRAYS, Enrollments, check_faces
from facerts.galleries.unmated import MatchThresholds, SearchThreshold
from facerts.io.files import atomic_write, locked
from facerts.io.npz import ArrayFormat, ArrayType

Arrays = dict[str, NDArray[Any]]

FORMAT = ArrayFormat(
    "facerts.gallery/1",
    "gallery",
    "facerts gallery build",
    "build it again",
    types={
        "model": ArrayType(np.str_),
        "model_sha256": ArrayType(np.str_),
        "people": ArrayType(np.str_, ("people",)),
        "person": ArrayType(np.int64, ("images",), 0, "people"),
        **IMAGE_ARRAYS,
        "templates": ArrayType(np.float32, ("people", "numbers")),
    },
    plain=False,
)
# Images may take MAX_BYTES of memory plus MAX_RATIO times the file, for embeddings hardly compress. The time to compare
# each image with all others is bounded by that too.
MAX_BYTES = 8 << 20
MAX_RATIO = 8
# Bytes of an image besides its embedding and texts: its numbers, and Python's objects.
IMAGE_BYTES = 768
# Numbers of an embedding; those of recognizers have 128 to 2,048.
MAX_SIZE = 4096
NOBODY_LEFT = "that would remove every image of the gallery; nothing was removed"


@dataclass(frozen=True)
class GallerySummary:
    """What is in a gallery, and of which model; the service describes it with these words.

    Attributes:
        size: number of numbers of an embedding.
        people: number of people.
        images: number of images.
    """

    model: str
    model_sha256: str
    size: int
    people: int
    images: int


# What to remove of some images ``(N,)``, and what to add to them.
Edit: TypeAlias = Callable[[Enrollments], tuple[NDArray[np.bool_], Enrollments]]


class Store(ABC):
    """Keeps the images of a gallery; threads may share it.

    A store reads and replaces all images. What follows from that is here; a database does it without reading them all.
    ``name`` is the file, or the address of the database without a password.
    """

    name: str

    def exists(self) -> bool:
        """Whether there is a gallery, or something else in its place."""
        return True

    @abstractmethod
    def read(self) -> Enrollments:
        """All images, by person."""

    @abstractmethod
    def replace(self, images: Enrollments) -> None:
        """Put images, by person, in place of what is there."""

    @contextmanager
    def reserved(self, *, replace: bool) -> Iterator[None]:
        """What comes before images are scored, so that they are not scored in vain, and before each change."""
        yield

    def change(
        self, people: Collection[str], paths: Collection[str], edit: Edit
    ) -> tuple[Enrollments, Enrollments, GallerySummary]:
        """Change the images of some people as one transaction.

        The people are those of these names and of images at these paths; ``edit`` gets all their images at least.
        Returns these images before and after it, and what is in the gallery then.
        """
        before = self.read()
        after = before.changed(*edit(before))
        if not len(after):
            raise DataError(NOBODY_LEFT)
        self.replace(after)
        return before, after, self.summary()

    def search(self, probes: NDArray[np.float32], k: int) -> list[list[tuple[str, float]]]:
        """The k most similar people to each probe ``(n, d)``, with their cosines, best first."""
        return self.read().search(probes, k)

    def threshold(self, fpir: float, matching: MatchThresholds) -> SearchThreshold:
        """The minimum cosine of a match at a false positive identification rate."""
        return self.read().threshold(fpir, matching)

    def summary(self) -> GallerySummary:
        """What is in the gallery."""
        images = self.read()
        return GallerySummary(images.model, images.model_sha256, images.size, len(images.people), len(images))

    def image_counts(self) -> dict[str, int]:
        """The number of images of each person, ordered by name."""
        return dict(sorted(Counter(self.read().person.tolist()).items()))

    def close(self) -> None:  # noqa: B027
        """Let go of connections; the next call opens one again."""


class MemoryStore(Store):
    """Images that nobody else can see."""

    name = "a gallery in memory"

    def __init__(self, images: Enrollments) -> None:
        self._images = images

    def read(self) -> Enrollments:
        return self._images

    def replace(self, images: Enrollments) -> None:
        self._images = images


class FileStore(Store):
    """An ``.npz`` file, which is read once, so that changes of other processes are not seen, and written anew."""

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self._path = Path(path)
        self._images: Enrollments | None = None

    def exists(self) -> bool:
        return self._path.exists()

    def read(self) -> Enrollments:
        images = self._images
        if images is None:
            images = self._images = read_gallery(self._path)
        return images

    @contextmanager
    def reserved(self, *, replace: bool) -> Iterator[None]:
        """Keep other processes from changing the file, and see what they have changed before."""
        if self._path.suffix != ".npz":
            raise Error(f"{self.name}: a gallery is written as .npz; choose a file with that suffix")
        with locked(self._path):
            self._images = None
            yield

    def replace(self, images: Enrollments) -> None:
        write_gallery(self._path, images)
        self._images = images


def write_gallery(path: Path, images: Enrollments) -> None:
    """Write a gallery file, which appears only when it is complete."""
    arrays = {
        "format": np.array(FORMAT.name),
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


def read_gallery(path: Path) -> Enrollments:
    """Read a gallery file; see docs/limits.md for its format.

    Templates follow from the images, so those in the file, which are for other programs, are not used.
    """
    with FORMAT.reading(path) as arrays:
        _check(arrays, path.stat().st_size)
        columns = {name: arrays[name] for name in IMAGE_ARRAYS}
        person = arrays["people"][arrays["person"]]
        return Enrollments(person, **columns, model=arrays["model"], model_sha256=arrays["model_sha256"]).in_order()


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
