"""A gallery of known people: enroll them, search for them, and keep poor and wrong images out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.errors import DataError, Error, ModelError, check_kind, importing
from facerts.galleries.check import Finding, Limits, Listed, check_images, listed_rows
from facerts.galleries.enroll import PROBE_KEEP, Faces, Rejected, enroll, scored_faces
from facerts.galleries.enrollments import SEPARATOR, BestImage, Enrollments, best_images
from facerts.galleries.person_name import normal_name
from facerts.galleries.store import FileStore, GallerySummary, MemoryStore, Store
from facerts.galleries.unmated import SearchThreshold
from facerts.scoring.face import Face, embedded
from facerts.scoring.inputs import Color
from facerts.scoring.parts import Recognizer
from facerts.scoring.prepare import storable
from facerts.scoring.scorer import Scorer
from facerts.scoring.track import Track

SCHEMES = ("postgresql:", "postgres:")


class Decision(str, Enum):
    """What a search says of a face."""

    MATCH = "match"
    UNKNOWN = "unknown"
    TOO_POOR = "too poor to say"
    NO_FACE = "no face"
    ERROR = "error"


@dataclass(frozen=True)
class Match:
    """The people in a gallery who are most like a face.

    Attributes:
        face: number of the face in the image, largest first; None without one.
        person: the most similar person, also where the decision is "unknown"; None for a poor face or none.
        threshold: minimum cosine similarity of a match at the requested rate.
        candidates: the k most similar people with their cosines, best first.
        reasons: what makes the face poor, see ``facerts.scoring.Row``.
    """

    path: str
    face: int | None
    decision: Decision
    person: str | None = None
    cosine: float | None = None
    threshold: float | None = None
    percentile: float | None = None
    quality: float | None = None
    candidates: tuple[tuple[str, float], ...] = ()
    reasons: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Enrolled:
    """What came of enrolling images, and how many people and images are in the gallery now.

    Attributes:
        reasons: number of the images that were enrolled with each reason, see ``facerts.scoring.reasons``.
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
    """What was removed from a gallery, and how many people and images are in it now.

    Attributes:
        entries: person and path of the images that were removed, in order.
        gone: people who have no image any more.
        kept: images that were listed but kept, as their person would have none; by person and path.
    """

    entries: tuple[tuple[str, str], ...]
    gone: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    people: int
    images: int


class Gallery:
    """People to search for, in a file, in a database, or in memory; threads may share it.

    A file is read once, and written anew with each change. Of a database, each call sees what others have written.

    Args:
        place: an ``.npz`` file, or the address of a database such as ``postgresql://user@host/database?gallery=people``,
            neither of which need exist yet; or the images themselves, to be kept in memory.

    Attributes:
        name: the file, or the address of the database without a password.

    Examples:
        >>> from pathlib import Path
        >>> import facerts
        >>> from facerts.datasets.synthetic import write_synthetic_faces
        >>> write_synthetic_faces(Path("people"), identities=4, images=4)
        >>> scorer = facerts.load()
        >>> people = facerts.Gallery.create("people.npz", scorer, "people", min_quality=-9)
        >>> people.summary().people
        4
        >>> best = people.best()[0]
        >>> (match,) = people.search(scorer, best.path, min_quality=-9, fpir=0.1)
        >>> match.person == best.person
        True
    """

    def __init__(self, place: str | Path | Enrollments) -> None:
        self._store = _open_store(place)
        self.name = self._store.name

    def __repr__(self) -> str:
        return f"<Gallery {self.name}>"

    @classmethod
    def create(cls, place: str | Path, scorer: Scorer, images: Faces | Source, **options: Any) -> Gallery:
        """A new gallery of these images, see ``build``."""
        gallery = cls(place)
        gallery.build(scorer, images, **options)
        return gallery

    def build(self, scorer: Scorer, images: Faces | Source, *, overwrite: bool = False, **options: Any) -> Enrolled:
        """Enroll images in a new gallery, with the options of ``add``; ``overwrite`` replaces one that is there."""
        with self._store.reserved(replace=True):
            if not overwrite and self._store.exists():
                raise Error(f"{self.name} exists; add to it, or give overwrite=True to replace all that is in it")
            return self._put(*enroll(scorer, images, **options), replace=True)

    def add(
        self,
        scorer: Scorer,
        images: Faces | Source,
        *,
        person: str | None = None,
        min_quality: float | None = None,
        color: Color = "RGB",
        progress: str = "",
    ) -> Enrolled:
        """Enroll the largest face of each image; one that is enrolled already, by its path, is enrolled anew.

        A file that is not there yet is created.

        Args:
            scorer: the model, and the detector for photos.
            images: images with identities: a folder with one subfolder for each person, records, tar shards. With
                ``person``, all that ``Scorer.score`` takes, or faces that the scorer has returned; those without a path
                are named by the SHA-256 of their content.
            min_quality: reject faces below this quality; None for the model's threshold that keeps 0.95 of its
                calibration faces, if it has one; -inf for none. What is not a face is rejected too, unless this is
                -inf.
            color: order of the channels of arrays: "RGB", or "BGR" for those of OpenCV.
            progress: what a progress bar says; empty for none.
        """
        with self._store.reserved(replace=False):
            # Nothing keeps others from building in a database meanwhile.
            is_new = isinstance(self._store, FileStore) and not self._store.exists()
            if not is_new:
                self.check_model(scorer)
            new, rejected = enroll(scorer, images, person, min_quality=min_quality, color=color, progress=progress)
            return self._put(new, rejected, replace=is_new)

    def merge(self, images: Enrollments) -> Enrolled:
        """Add images that were enrolled elsewhere with the same model."""
        with self._store.reserved(replace=False):
            return self._put(images.in_order())

    def replace(self, images: Enrollments) -> None:
        """Put images, such as those of another gallery, in place of what is there, if anything is."""
        with self._store.reserved(replace=True):
            self._store.replace(images.in_order())

    def remove(
        self,
        people: str | Iterable[str] = (),
        *,
        paths: str | Iterable[str] = (),
        findings: Iterable[Finding | Listed] = (),
    ) -> Removed:
        """Remove people with all their images, images by their paths, and what a check found.

        The best image of a person who would have none is kept if it is only among the findings, unless it is not a
        face or is there twice.
        """
        listed = [Listed(normal_name(each.person), each.path, each.reason) for each in findings]
        people, paths = ([each] if isinstance(each, str) else each for each in (people, paths))
        whole, stored = [*map(normal_name, people)], {*map(storable, paths)}

        def edit(known: Enrollments) -> tuple[NDArray[np.bool_], Enrollments]:
            by_path = [entry for entry in known.entries if entry[1] in stored]
            by_path += [("", path) for path in stored - set(known.path.tolist())]
            named = [*((name, "") for name in whole), *by_path]
            gone = listed_rows(known, [*listed, *(Listed(*each, "") for each in named)])
            return gone, known.take(np.zeros(0, dtype=int))

        concerned = [*whole, *(each.person for each in listed)]
        with self._store.reserved(replace=False):
            before, after, left = self._store.change(concerned, stored, edit)
        still_there = set(after.entries)
        return Removed(
            tuple(sorted(set(before.entries) - still_there)),
            tuple(sorted(set(before.people.tolist()) - set(after.people.tolist()))),
            tuple(sorted({(each.person, each.path) for each in listed} & still_there)),
            left.people,
            left.images,
        )

    def search(
        self,
        scorer: Scorer,
        images: Faces | Source,
        *,
        fpir: float = 0.01,
        k: int = 1,
        min_quality: float | None = None,
        largest: bool = False,
        color: Color = "RGB",
        progress: str = "",
    ) -> list[Match]:
        """The most similar people of each face in each image, and whether the first is a match.

        Args:
            images: all that ``Scorer.score`` takes, or faces that the scorer has returned.
            fpir: see ``threshold``.
            k: number of candidates of each face.
            min_quality: say nothing of faces below this quality, or of what is not a face; None for the model's
                threshold that keeps 0.99 of calibration faces, if it has one; -inf for none.
            largest: search only for the largest face of each photo.
        """
        self.check_model(scorer)
        faces = scored_faces(scorer, images, PROBE_KEEP, min_quality, largest=largest, color=color, progress=progress)
        return self.match([*faces], fpir=fpir, k=k, recognizer=scorer.recognizer)

    def match(
        self, faces: Sequence[Face], *, fpir: float = 0.01, k: int = 1, recognizer: Recognizer | None = None
    ) -> list[Match]:
        """As ``search``, for faces that the gallery's model has scored; they may have the ``recognizer`` with them."""
        if k < 1:
            raise Error(f"a search for {k} people; give a number from 1 on")
        recognizer = recognizer or next((face.recognizer for face in faces if face.recognizer), None)
        threshold, content = self.threshold(fpir, recognizer).cosine, self.summary()
        faces = embedded(faces)
        usable = [face for face in faces if face.vector is not None and not face.row.rejected]
        for face in usable:
            _check_model(content, "the model of this face", face.model_sha256)
        candidates: dict[int, list[tuple[str, float]]] = {}
        if usable:
            probes = np.array([face.vector for face in usable], dtype=np.float32)
            _check_size(content, probes)
            candidates = dict(zip(map(id, usable), self._store.search(probes, k), strict=True))
        return [_match_of(face, candidates.get(id(face), ()), threshold) for face in faces]

    def threshold(self, fpir: float, recognizer: Recognizer | None = None) -> SearchThreshold:
        """The minimum cosine of a match at a false positive identification rate, see ``facerts.galleries.unmated``.

        Args:
            fpir: the share of searches for people who are not enrolled that may find somebody, above 0 and below 1.
            recognizer: the gallery's model, whose match thresholds stand in where the gallery has fewer images than
                1 / ``fpir``; None to guess.
        """
        check_kind("a number", fpir=fpir)
        if not 0 < fpir < 1:
            raise Error(f"a false positive identification rate of {fpir:g} is not above 0 and below 1")
        return self._store.threshold(fpir, recognizer.match_thresholds() if recognizer else ())

    def check(self, limits: Limits | None = None) -> list[Finding]:
        """Enrollments that are poor, not a face, of somebody else, or there twice; most suspicious first."""
        return check_images(self.read(), limits)

    def best(self, k: int = 1) -> list[BestImage]:
        """The ``k`` best images of each person: good, and like the person's other images."""
        return best_images(self.read(), k)

    def summary(self) -> GallerySummary:
        """What is in the gallery."""
        return self._store.summary()

    def image_counts(self) -> dict[str, int]:
        """The number of images of each person, ordered by name."""
        return self._store.image_counts()

    def read(self) -> Enrollments:
        """All images, by person; those of a database are read into memory."""
        return self._store.read()

    def check_model(self, scorer: Scorer) -> None:
        """Refuse a model other than the gallery's, whose embeddings cannot be compared."""
        if not isinstance(scorer, Scorer):
            raise Error(f"give a scorer first, as facerts.load() opens it, not a {type(scorer).__name__}")
        _check_model(self.summary(), scorer.recognizer.name, scorer.recognizer.sha256)

    def close(self) -> None:
        """Close the connections to a database; the next call opens one again."""
        self._store.close()

    def _put(self, new: Enrollments, rejected: tuple[Rejected, ...] = (), *, replace: bool = False) -> Enrolled:
        def edit(known: Enrollments) -> tuple[NDArray[np.bool_], Enrollments]:
            _check_model(known, new.model, new.model_sha256)
            _check_size(known, new.embedding)
            return known.among(new.entries), new

        names = {each.person for each in rejected}
        if replace:
            self._store.replace(new)
            after, people, images = new, len(new.people), len(new)
        else:
            _, after, content = self._store.change({*names, *new.people.tolist()}, (), edit)
            people, images = content.people, content.images
        reasons = Counter(reason for each in new.reasons.tolist() for reason in each.split(SEPARATOR) if reason)
        return Enrolled(people, images, reasons, rejected, tuple(sorted(names - set(after.people.tolist()))))


@dataclass(frozen=True)
class TrackSearch:
    """A gallery in memory, in which the person of each track of a video is searched for.

    Attributes:
        fpir: share of searches for people who are not in the gallery that may find somebody.
        recognizer: see ``Gallery.threshold``.
    """

    gallery: Gallery
    fpir: float = 0.01
    recognizer: Recognizer | None = None

    def columns(self, track: Track) -> Mapping[str, Any]:
        """What the row of a track says of its person."""
        (match,) = self.gallery.match([track.as_face()], fpir=self.fpir, recognizer=self.recognizer)
        found = {name: getattr(match, name) for name in ("person", "cosine", "threshold")}
        return {"decision": match.decision.value, "fpir": self.fpir, **found}

    def settings(self) -> list[Any]:
        """What tells this search from others, as JSON values."""
        enrolled = self.gallery.read()
        digest = hashlib.sha256(np.ascontiguousarray(enrolled.templates).tobytes())
        digest.update("\0".join(enrolled.people.tolist()).encode("utf-8", "surrogatepass"))
        return [digest.hexdigest(), self.fpir]


def _match_of(face: Face, candidates: Sequence[tuple[str, float]], threshold: float) -> Match:
    """The outcome for a face, which has no candidates if it cannot be searched for."""
    row = face.row
    # Rounding may carry the cosine of the same image beyond 1.
    candidates = tuple((name, max(-1.0, min(score, 1.0))) for name, score in candidates)
    person, cosine = candidates[0] if candidates else (None, None)
    if cosine is not None:
        decision = Decision.MATCH if cosine >= threshold else Decision.UNKNOWN
    elif face.vector is not None:
        decision = Decision.TOO_POOR
    else:
        decision = Decision.NO_FACE if row.error is None else Decision.ERROR
    return Match(
        row.path,
        row.face,
        decision,
        person,
        cosine,
        threshold if candidates else None,
        row.percentile,
        row.quality,
        candidates,
        row.reasons,
        row.error,
    )


def _check_model(content: GallerySummary | Enrollments, name: str, sha256: str) -> None:
    if content.model_sha256 != sha256:
        raise ModelError(
            f"the gallery is of the model {content.model} ({content.model_sha256[:12]}…), and embeddings of {name} "
            f"({sha256[:12]}…) cannot be compared with it; give that model (model=NAME), or build the gallery again"
        )


def _check_size(content: GallerySummary | Enrollments, probes: NDArray[np.float32]) -> None:
    if (size := probes.shape[1]) != content.size:
        raise DataError(
            f"the gallery's embeddings have {content.size} numbers, and those of its model have {size}; build it again"
        )


def _open_store(place: str | Path | Enrollments) -> Store:
    if isinstance(place, Enrollments):
        return MemoryStore(place.in_order())
    if not str(place).startswith(SCHEMES):
        return FileStore(place)
    with importing("a gallery in a database needs psycopg and pgvector", "postgres"):
        from facerts.galleries.postgres_store import PostgresStore
    return PostgresStore(place)
