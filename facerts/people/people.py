"""People without names: groups of faces with numbers, what was decided about them, and what is said of each face."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from facerts.errors import Error, did_you_mean
from facerts.galleries import Gallery, Match
from facerts.galleries.enrollments import best_images
from facerts.galleries.person_name import normal_name
from facerts.people.constraints import Constraints
from facerts.people.found_faces import FoundFaces, Rows
from facerts.people.groups_file import PeopleGroups
from facerts.scoring.face import Face
from facerts.scoring.prepare import storable
from facerts.scoring.reasons import BELOW_THRESHOLD, NO_FACE
from facerts.scoring.sinks import open_sink

# Digits of an image's SHA-256 in the name of a face; more where images share them.
ID_DIGITS = 8
NUMBER = r"[0-9]{1,9}"
_ID = re.compile(rf"([0-9a-f]{{4,64}})-({NUMBER})")


class FaceStatus(str, Enum):
    """What became of a face or a photo.

    MEMBER: good enough to tell the people of groups apart, and in one.
    ATTACHED: poor, and put into a group that is there without it.
    UNCLEAR: a face in no group.
    NON_FACE: in no group, as it is none.
    HIDDEN: in the group of a person who is hidden.
    REMOVED: in no group, as somebody decided.
    NO_FACE: a photo in which none was found.
    ERROR: a photo that could not be read.
    """

    MEMBER = "member"
    ATTACHED = "attached"
    UNCLEAR = "unclear"
    NON_FACE = "not a face"
    HIDDEN = "hidden"
    REMOVED = "removed"
    NO_FACE = "no face"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class PersonFace:
    """A face of a photo, or a photo without one; a row of ``people.csv``.

    Attributes:
        person: number of the person; None if the face is of none.
        rank: of the face among those of its person, 1 for the best.
        face: number of the face in the photo, largest first.
        id: name of the face for commands: the beginning of the image's SHA-256, and the face's number.
        box: left, top, right and bottom in pixels; None for an aligned crop.
        probability: that it is of the person, or of the suggested one.
        suggested: number of the person that a face of none is most like.
        image_sha256: SHA-256 of the photo's bytes.
    """

    person: int | None = None
    name: str | None = None
    status: FaceStatus
    rank: int | None = None
    path: str
    face: int | None = None
    id: str | None = None
    box: list[float] | None = None
    probability: float | None = None
    percentile: float | None = None
    quality: float | None = None
    reasons: tuple[str, ...] = ()
    suggested: int | None = None
    image_sha256: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Person:
    """A group of faces.

    Attributes:
        number: which a group keeps for good.
        name: empty without one.
        rows: of its faces in the table, best first.
        photos: number of different images with one of the faces.
    """

    number: int
    name: str
    rows: Rows
    photos: int

    @property
    def hidden(self) -> bool:
        """Whether the page folds the person away, and galleries and copies leave it out."""
        return self.name.startswith(".")

    @property
    def title(self) -> str:
        """The name, or "Person 12"."""
        return self.name or f"Person {self.number}"

    @property
    def file_name(self) -> str:
        """The name, or "person-12", for folders and galleries."""
        return self.name or f"person-{self.number}"


@dataclass(frozen=True)
class People:
    """The people of a folder that ``find_people`` wrote. It never changes; a correction returns another one.

    Attributes:
        decisions: number of decisions that stand.
    """

    folder: Path
    found: FoundFaces
    groups: PeopleGroups
    constraints: Constraints
    decisions: int = 0

    @cached_property
    def persons(self) -> tuple[Person, ...]:
        """The people, with most images first, the hidden ones last."""
        names = {int(self.groups.group[rows[0]]): name for rows, name in self.constraints.known if name}
        persons = []
        for number, rows in self._best_first.items():
            photos = len(np.unique(self.found.face_image[rows]))
            persons.append(Person(number, names.get(number, ""), rows, photos))
        return tuple(sorted(persons, key=lambda each: (each.hidden, -each.photos, each.number)))

    @cached_property
    def alike(self) -> tuple[tuple[Person, Person, float], ...]:
        """Pairs of people who may be one, with the probability of it, likeliest first; without hidden ones."""
        known = self.by_number
        pairs = zip(self.groups.alike.tolist(), self.groups.alike_probability.tolist(), strict=True)
        return tuple(
            (known[one], known[other], probability)
            for (one, other), probability in pairs
            if one != other and {one, other} <= set(known) and not (known[one].hidden or known[other].hidden)
        )

    @cached_property
    def by_number(self) -> dict[int, Person]:
        """The people by number."""
        return {person.number: person for person in self.persons}

    def shown(self, *, named_only: bool = False) -> list[Person]:
        """The people who are not hidden."""
        return [each for each in self.persons if not each.hidden and (each.name or not named_only)]

    def gallery(self, k: int = 5, *, named_only: bool = False) -> Gallery:
        """A gallery in memory, of the best faces of each person, without poor faces and hidden people.

        Args:
            k: faces of each person, from different photos, at most.
            named_only: leave out people without a name; otherwise they are called "person-12".
        """
        names, rows = [], []
        for person in self.shown(named_only=named_only):
            good = person.rows[self.usable[person.rows]]
            _, first = np.unique(self.found.face_image[good], return_index=True)
            best = good[np.sort(first)][:k]
            names += [person.file_name] * len(best)
            rows += best.tolist()
        if not rows:
            why = "; name people first: facerts people name" if named_only else ", as no person has a good face"
            raise Error(f"{self.folder}: nobody to enroll{why}")
        return Gallery(self.found.enrollments(np.array(rows), names))

    def search(self, faces: Face | Iterable[Face], *, fpir: float = 0.01, k: int = 1) -> list[Match]:
        """Who faces are that a scorer has returned; ``gallery().search`` takes images, too.

        Args:
            fpir: see ``Gallery.threshold``.
            k: number of candidates of each face.
        """
        given = [faces] if isinstance(faces, Face) else [*faces]
        return self.gallery().match(given, fpir=fpir, k=k)

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """``(F,)`` whether a face may join a group with others."""
        return self.found.usable(self.groups.min_quality)

    def person(self, of: int | str) -> Person:
        """A person by number or name."""
        text = normal_name(str(of))
        number = normalize("NFKC", text)
        for person in self.persons:
            if number == str(person.number) or (text and text == person.name):
                return person
        known = [person.name for person in self.persons if person.name]
        raise Error(
            f"{self.folder}: no person {text}{did_you_mean(text, known)}; facerts people list {self.folder} has all"
        )

    def rows_of(self, faces: Iterable[str]) -> list[int]:
        """The rows of faces by their names: an id such as 3f2a9c01-0, or a photo, with #1 for its second face."""
        return list(dict.fromkeys(self._row_of(face) for face in faces))

    def face_id(self, row: int) -> str:
        """The name of a face for commands."""
        image = int(self.found.face_image[row])
        return f"{self._short[image]}-{self.found.number[row]}"

    @cached_property
    def status(self) -> tuple[FaceStatus, ...]:
        """``(F,)`` what became of each face."""
        return tuple(self._status(row) for row in range(len(self.found)))

    def unclear(self) -> Rows:
        """Faces in no group, most likely first."""
        rows = [row for row, status in enumerate(self.status) if status is FaceStatus.UNCLEAR]
        likely = np.nan_to_num(self.groups.probability[rows], nan=-1.0)
        return np.array(rows, dtype=np.int64)[np.argsort(-likely, kind="stable")]

    def faces(self) -> Iterator[PersonFace]:
        """A row for each face of each photo, and for each photo without one: by person, then by rank, then by path."""
        placed = [row for person in self.persons for row in person.rows.tolist()]
        others = sorted(set(range(len(self.found))) - set(placed))
        for row in [*placed, *others]:
            for photo in self.found.photos_of(row).tolist():
                yield self.face(row, photo)
        for at, photo in enumerate(self.found.photos):
            image = int(self.found.image[at])
            if image < 0:
                yield PersonFace(status=FaceStatus.ERROR, path=photo.path, error=photo.error)
            elif not self.found.rows_in(image):
                yield PersonFace(
                    status=FaceStatus.NO_FACE, path=photo.path, reasons=(NO_FACE,), image_sha256=photo.sha256
                )

    def face(self, row: int, photo: int | None = None) -> PersonFace:
        """What is said of a face in a photo; None for the first photo that shows it."""
        found, groups = self.found, self.groups
        number, key = int(groups.group[row]), found.key(row)
        person = self.by_number.get(number)
        unclear = self.status[row] is FaceStatus.UNCLEAR and groups.suggested[row] >= 0
        reasons = found.reasons_of(row)
        if found.quality[row] < groups.min_quality:
            reasons += (BELOW_THRESHOLD,)
        return PersonFace(
            person=None if person is None else number,
            name=(person.name or None) if person is not None else None,
            status=self.status[row],
            rank=self._rank.get(row),
            path=str(found.path[found.photos_of(row)[0] if photo is None else photo]),
            face=int(found.number[row]),
            id=self.face_id(row),
            box=None if key.box is None else list(key.box),
            probability=_rounded(groups.probability[row]) if number >= 0 or unclear else None,
            percentile=_rounded(found.percentile[row], 2),
            quality=_rounded(found.quality[row]),
            reasons=reasons,
            suggested=int(groups.suggested[row]) if unclear else None,
            image_sha256=key.image,
        )

    def write_table(self, path: Path) -> None:
        """Write the rows of ``faces`` as .csv, .jsonl or .parquet."""
        with open_sink(path, PersonFace) as put:
            for face in self.faces():
                put(face)

    def summary(self) -> dict[str, int]:
        """Counts by name, as commands print them."""
        counts = Counter(self.status)
        shown = self.shown()
        return {
            "photos": len(self.found.path),
            "faces": len(self.found),
            "people": len(shown),
            "named": sum(bool(person.name) for person in shown),
            "in_one_photo": sum(person.photos == 1 for person in shown),
            **{status.value.replace(" ", "_"): counts[status] for status in FaceStatus if status in counts},
            "could_not_be_read": int((self.found.image < 0).sum()),
            "decisions": self.decisions,
        }

    @cached_property
    def _best_first(self) -> dict[int, Rows]:
        """The rows of each group: those of high quality that are like the group's other faces come first."""
        rows = np.flatnonzero(self.groups.group >= 0)
        if not len(rows):
            return {}
        images = self.found.enrollments(rows, self.groups.group[rows].astype(str).tolist())
        ordered: dict[int, list[int]] = {}
        for image in best_images(replace(images, path=rows.astype(str)), len(rows)):
            ordered.setdefault(int(image.person), []).append(int(image.path))
        return {number: np.array(each, dtype=np.int64) for number, each in ordered.items()}

    @cached_property
    def _rank(self) -> dict[int, int]:
        return {row: rank for person in self.persons for rank, row in enumerate(person.rows.tolist(), start=1)}

    @cached_property
    def _short(self) -> list[str]:
        """Beginnings of the images' SHA-256 that are unique among them."""
        names = self.found.sha256.tolist()
        digits = ID_DIGITS
        while len({name[:digits] for name in names}) < len(names):
            digits += 1
        return [name[:digits] for name in names]

    @cached_property
    def _photos(self) -> dict[str, int]:
        """The photos by absolute path, however they were given."""
        return {os.path.abspath(path): photo for photo, path in enumerate(self.found.path.tolist())}

    def _row_of(self, face: str) -> int:
        face = storable(face)
        if match := _ID.fullmatch(face):
            rows = [
                row
                for image, name in enumerate(self.found.sha256.tolist())
                if name.startswith(match[1])
                for row in self.found.rows_in(image)
                if self.found.number[row] == int(match[2])
            ]
        else:
            path, _, number = face.rpartition("#")
            if os.path.abspath(face) in self._photos or not re.fullmatch(NUMBER, number):
                path, number = face, ""
            photo = self._photos.get(os.path.abspath(path))
            image = -1 if photo is None else int(self.found.image[photo])
            rows = list(self.found.rows_in(image)) if image >= 0 else []
            if number:
                rows = [row for row in rows if self.found.number[row] == int(number)]
        if len(rows) == 1:
            return rows[0]
        if rows:
            ids = ", ".join(map(self.face_id, rows[:5]))
            raise Error(f"{face} has {len(rows)} faces; name one by its id: {ids}")
        raise Error(
            f"{self.folder}: no face {face}; give an id such as 3f2a9c01-0 from the page or people.csv, or a photo "
            "that facerts people find was given"
        )

    def _status(self, row: int) -> FaceStatus:
        if self.constraints.removed[row]:
            return FaceStatus.REMOVED
        if person := self.by_number.get(int(self.groups.group[row])):
            if person.hidden:
                return FaceStatus.HIDDEN
            return FaceStatus.MEMBER if self.usable[row] else FaceStatus.ATTACHED
        return FaceStatus.UNCLEAR if self.found.is_face[row] else FaceStatus.NON_FACE


def _rounded(value: float, digits: int = 4) -> float | None:
    return None if np.isnan(value) else round(float(value), digits)
