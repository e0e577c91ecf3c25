"""People to a gallery that can be searched: the best faces of each, by name or number."""

from __future__ import annotations

import numpy as np

from facerts.errors import Error
from facerts.galleries.enrollments import Enrollments
from facerts.galleries.gallery import Gallery
from facerts.people.people import People, Person


def gallery_of_people(people: People, k: int = 5, *, named_only: bool = False) -> Gallery:
    """A gallery in memory, of the best faces of each person, without poor faces and hidden people.

    Args:
        people: of ``find_people``, with its corrections.
        k: faces of each person, from different photos, at most.
        named_only: leave out people without a name; otherwise they are called "person-12".
    """
    chosen = [
        (person, row)
        for person in shown_people(people, named_only=named_only)
        for row in _best(people, person, k)
    ]
    if not chosen:
        raise Error(
            f"{people.folder}: nobody to enroll"
            + ("; name people first: facerts people name" if named_only else ", as no person has a good face")
        )
    found, rows = people.found, np.array([row for _, row in chosen])
    enrollments = Enrollments(
        np.array([person.file_name for person, _ in chosen], dtype=str),
        np.array([str(found.path[found.photos_of(row)[0]]) for row in rows.tolist()], dtype=str),
        found.embedding[rows],
        found.quality[rows],
        found.percentile[rows],
        found.reasons[rows],
        found.model,
        found.model_sha256,
    )
    return Gallery(enrollments)


def shown_people(people: People, *, named_only: bool = False) -> list[Person]:
    """The people who are not hidden."""
    return [person for person in people.persons if not person.hidden and (person.name or not named_only)]


def _best(people: People, person: Person, k: int) -> list[int]:
    """The best good faces of a person, one of each image."""
    by_image: dict[int, int] = {}
    for row in person.rows.tolist():
        if people.usable[row]:
            by_image.setdefault(int(people.found.face_image[row]), row)
    return list(by_image.values())[:k]
