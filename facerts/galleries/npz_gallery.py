"""A gallery in a file, which is written anew with each change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from facerts.galleries.check import correct_gallery
from facerts.galleries.enroll import Images
from facerts.galleries.findings import Finding, Listed
from facerts.galleries.gallery import Gallery
from facerts.galleries.gallery_file import read_gallery, write_gallery
from facerts.galleries.match import Match
from facerts.galleries.stored_gallery import (
    Enrolled,
    GallerySummary,
    Removed,
    StoredGallery,
    people_without_image,
    reason_counts,
)
from facerts.galleries.unmated import SearchThreshold
from facerts.io.files import locked
from facerts.scoring.inputs import Color, ImageInputs
from facerts.scoring.prepare import storable
from facerts.scoring.row_builder import ScoredFace
from facerts.scoring.scorer import Scorer


class NpzGallery(StoredGallery):
    """A gallery in an ``.npz`` file, which is read once; a change of another process is not seen.

    Args:
        path: the file, which need not exist before ``build`` or ``write``.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self._path = Path(path)
        self._gallery: Gallery | None = None

    def summary(self) -> GallerySummary:
        gallery = self.read()
        size = gallery.enrollments.embedding.shape[1]
        images = len(gallery.enrollments)
        return GallerySummary(gallery.model, gallery.model_sha256, size, len(gallery.people), images)

    def image_counts(self) -> dict[str, int]:
        gallery = self.read()
        images = Counter(gallery.enrollments.person.tolist())
        return {person: images[person] for person in gallery.people.tolist()}

    def read(self) -> Gallery:
        """All of the gallery as it was when it was read first, or changed here."""
        if self._gallery is None:
            self._gallery = read_gallery(self._path)
        return self._gallery

    def write(self, gallery: Gallery) -> None:
        """Put a gallery in place of what is there."""
        with locked(self._path):
            self._write(gallery)

    def build(
        self, scorer: Scorer, images: Images, *, min_quality: float | None = None, progress: str = ""
    ) -> Enrolled:
        with locked(self._path):
            built = Gallery.build(scorer, images, min_quality=min_quality, progress=progress)
            self._write(built)
        return _enrolled(built)

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
        with self._changing() as known:
            changed = known.add(
                scorer, images, person=person, min_quality=min_quality, color=color, progress=progress
            )
            self._write(changed)
        return _enrolled(changed)

    def merge(self, gallery: Gallery) -> None:
        with self._changing() as known:
            self._write(known.merged(gallery))

    def remove(
        self,
        *,
        people: Iterable[str] = (),
        paths: Iterable[str] = (),
        findings: Sequence[Finding | Listed] = (),
    ) -> Removed:
        with self._changing() as known:
            listed = [*findings, *(Listed(name, "", "") for name in people)]
            listed += _entries_of(known, [*map(storable, paths)])
            left, kept = correct_gallery(known, listed)
            self._write(left)
        return Removed(
            tuple(sorted(set(known.entries) - set(left.entries))),
            tuple(sorted(set(known.people.tolist()) - set(left.people.tolist()))),
            tuple(kept),
            len(left.people),
            len(left.enrollments),
        )

    def check_model(self, scorer: Scorer) -> None:
        self.read().check_model(scorer)

    def threshold(self, fpir: float) -> SearchThreshold:
        return self.read().threshold(fpir)

    def match(self, faces: Sequence[ScoredFace], *, fpir: float = 0.01, k: int = 1) -> list[Match]:
        return self.read().match(faces, fpir=fpir, k=k)

    @contextmanager
    def _changing(self) -> Iterator[Gallery]:
        """The gallery as it is in the file, which no other process changes in the meantime."""
        with locked(self._path):
            yield read_gallery(self._path)

    def _write(self, gallery: Gallery) -> None:
        write_gallery(self._path, gallery)
        self._gallery = gallery


def _enrolled(gallery: Gallery) -> Enrolled:
    images = gallery.enrollments
    return Enrolled(
        len(gallery.people),
        len(images),
        reason_counts(Counter(images.reasons.tolist())),
        gallery.rejected,
        people_without_image(gallery.rejected, gallery.people.tolist()),
    )


def _entries_of(gallery: Gallery, paths: Sequence[str]) -> list[Listed]:
    """Enrolled images by their paths; a path that is not enrolled stays, for ``remove`` to name it."""
    wanted, enrolled = set(paths), set(gallery.enrollments.path.tolist())
    unknown = [Listed("", path, "") for path in paths if path not in enrolled]
    return [Listed(*entry, "") for entry in gallery.entries if entry[1] in wanted] + unknown
