"""What a gallery that is kept somewhere can do, be it a file or a database."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from facerts.galleries.enroll import SEPARATOR, Images, Rejected
from facerts.galleries.findings import Finding, Listed
from facerts.galleries.gallery import Gallery
from facerts.galleries.people_search import PeopleSearch
from facerts.scoring.inputs import Color, ImageInputs
from facerts.scoring.scorer import Scorer


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


@dataclass(frozen=True)
class Enrolled:
    """What came of enrolling images.

    Attributes:
        people: number of people in the gallery now.
        images: number of images in it.
        reasons: number of its images with each reason, see ``facerts.scoring.reasons``.
        rejected: images that were not enrolled.
        without_image: people who have no image in the gallery, as all of theirs were rejected.
    """

    people: int
    images: int
    reasons: Mapping[str, int]
    rejected: tuple[Rejected, ...]
    without_image: tuple[str, ...]


@dataclass(frozen=True)
class Removed:
    """What was removed from a gallery.

    Attributes:
        entries: person and path of the images that were removed, in order.
        gone: people who have no image any more.
        kept: images that were listed but kept, as their person would have none; by person and path.
        people: number of people in the gallery now.
        images: number of images in it.
    """

    entries: tuple[tuple[str, str], ...]
    gone: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    people: int
    images: int


class StoredGallery(PeopleSearch):
    """A gallery in a file or a database, which ``open_gallery`` opens; threads may share it.

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
    def read(self) -> Gallery:
        """All of the gallery as it is now, such as for ``check_gallery`` and ``best_images``."""

    @abstractmethod
    def write(self, gallery: Gallery) -> None:
        """Put a gallery in place of what is there."""

    @abstractmethod
    def build(
        self, scorer: Scorer, images: Images, *, min_quality: float | None = None, progress: str = ""
    ) -> Enrolled:
        """Enroll images in place of what is there; see ``Gallery.build``."""

    @abstractmethod
    def add(
        self,
        scorer: Scorer,
        images: ImageInputs,
        *,
        person: str | None = None,
        min_quality: float | None = None,
        color: Color = "RGB",
        progress: str = "",
    ) -> Enrolled:
        """Enroll more images; see ``Gallery.add``."""

    @abstractmethod
    def merge(self, gallery: Gallery) -> None:
        """Add the images of another gallery of the same model; see ``Gallery.merged``."""

    @abstractmethod
    def remove(
        self,
        *,
        people: Iterable[str] = (),
        paths: Iterable[str] = (),
        findings: Sequence[Finding | Listed] = (),
    ) -> Removed:
        """Remove people with all their images, images by their paths, and what a check found.

        The last good image of a person stays if it is only among the findings, see ``correct_gallery``.
        """


def people_without_image(rejected: Iterable[Rejected], enrolled: Iterable[str]) -> tuple[str, ...]:
    """People of images that were rejected who are not enrolled."""
    return tuple(sorted({image.person for image in rejected} - set(enrolled)))


def reason_counts(joined: Mapping[str, int]) -> dict[str, int]:
    """The number of images with each reason, from the number with each combination of reasons."""
    counts: Counter[str] = Counter()
    for reasons, images in joined.items():
        counts.update(dict.fromkeys(filter(None, reasons.split(SEPARATOR)), images))
    return dict(counts)
