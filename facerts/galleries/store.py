"""Where a gallery is kept: in memory, in a file, or, in ``postgres_store``, in a database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.galleries.enrollments import Enrollments
from facerts.galleries.gallery_file import read_gallery, write_gallery
from facerts.galleries.unmated import SearchThreshold
from facerts.io.files import locked

NOBODY_LEFT = "that would remove every image of the gallery; nothing was removed"


@dataclass(frozen=True)
class GallerySummary:
    """What is in a gallery.

    Attributes:
        model_sha256: SHA-256 of the model's file.
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
Edit: TypeAlias = Callable[[Enrollments], tuple[NDArray[np.bool_], Enrollments | None]]


class Change(NamedTuple):
    """What a change did to the people whom it concerns, and what is in the gallery after it."""

    before: Enrollments
    after: Enrollments
    summary: GallerySummary


class Store(ABC):
    """Keeps the images of a gallery; threads may share it.

    Attributes:
        name: the file, or the address of the database without a password.
    """

    name: str

    @abstractmethod
    def summary(self) -> GallerySummary:
        """What is in the gallery."""

    @abstractmethod
    def image_counts(self) -> dict[str, int]:
        """The number of images of each person, ordered by name."""

    @abstractmethod
    def read(self) -> Enrollments:
        """All images, by person."""

    @abstractmethod
    def reserved(self, *, replace: bool) -> AbstractContextManager[None]:
        """What comes before images are scored, so that they are not scored in vain; and before each change.

        Args:
            replace: whether all images will be replaced.
        """

    @abstractmethod
    def replace(self, images: Enrollments) -> None:
        """Put images, by person, in place of what is there."""

    @abstractmethod
    def change(self, people: Collection[str], paths: Collection[str], edit: Edit) -> Change:
        """Change the images of some people as one transaction.

        Args:
            people: names of those whom the change concerns.
            paths: of images whose people it concerns too.
            edit: what to change, given all images of these people at least.
        """

    @abstractmethod
    def search(self, probes: NDArray[np.float32], k: int) -> list[list[tuple[str, float]]]:
        """The k most similar people to each probe ``(n, d)``, with their cosines, best first."""

    @abstractmethod
    def threshold(self, fpir: float) -> SearchThreshold:
        """The minimum cosine of a match at a false positive identification rate."""

    def close(self) -> None:  # noqa: B027
        """Let go of connections; the next call opens one again."""


class MemoryStore(Store):
    """Images that nobody else can see."""

    name = "a gallery in memory"

    def __init__(self, images: Enrollments | None) -> None:
        self._images = images

    def summary(self) -> GallerySummary:
        images = self.read()
        size = images.embedding.shape[1]
        return GallerySummary(images.model, images.model_sha256, size, len(images.people), len(images))

    def image_counts(self) -> dict[str, int]:
        return dict(sorted(Counter(self.read().person.tolist()).items()))

    def read(self) -> Enrollments:
        assert self._images is not None
        return self._images

    @contextmanager
    def reserved(self, *, replace: bool) -> Iterator[None]:
        yield

    def replace(self, images: Enrollments) -> None:
        self._images = images

    def change(self, people: Collection[str], paths: Collection[str], edit: Edit) -> Change:
        before = self.read()
        after = before.changed(*edit(before))
        if not len(after):
            raise DataError(NOBODY_LEFT)
        self.replace(after)
        return Change(before, after, self.summary())

    def search(self, probes: NDArray[np.float32], k: int) -> list[list[tuple[str, float]]]:
        return self.read().search(probes, k)

    def threshold(self, fpir: float) -> SearchThreshold:
        return self.read().threshold(fpir)


class FileStore(MemoryStore):
    """An ``.npz`` file, which is read once, so that changes of other processes are not seen, and written anew."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(None)
        self.name = str(path)
        self._path = Path(path)

    def read(self) -> Enrollments:
        images = self._images
        if images is None:
            images = self._images = read_gallery(self._path)
        return images

    @contextmanager
    def reserved(self, *, replace: bool) -> Iterator[None]:
        """Keep other processes from changing the file, and see what they have changed before."""
        with locked(self._path):
            self._images = None
            yield

    def replace(self, images: Enrollments) -> None:
        write_gallery(self._path, images)
        self._images = images
