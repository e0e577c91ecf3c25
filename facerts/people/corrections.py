"""Corrections of groups by people: each is stored as a decision that every later run obeys, and takes effect at once.

A correction moves the faces that it names and no others; the next ``find_people`` takes it into account for all faces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import numpy as np

from facerts.errors import Error, WriteError
from facerts.galleries.person_name import person_name
from facerts.io.files import locked, sync_names, writing
from facerts.people.decisions import NOBODY, Action, PeopleDecision, read_decisions, standing, write_decisions
from facerts.people.found_faces import Rows
from facerts.people.people import People
from facerts.people.people_folder import DECISIONS, people_after, read_people, save

_NONE = np.zeros(0, dtype=np.int64)


class Corrected(NamedTuple):
    """A correction.

    Attributes:
        people: after it.
        decision: what was decided; of an undo, what was taken back.
        numbers: of the people that it is about, as far as they are still there.
    """

    people: People
    decision: PeopleDecision
    numbers: list[int]


def merge_people(folder: str | Path, people: Sequence[int | str]) -> Corrected:
    """Decide that two or more people, by number or name, are one; the first keeps its number and its name."""
    with locked(Path(folder)):
        known = read_people(folder)
        persons = {each.number: each for each in map(known.person, people)}
        if len(persons) < 2:
            raise Error("a merge needs two different people; give their numbers or names")
        first, *others = persons.values()
        faces = np.concatenate([np.sort(each.rows) for each in others])
        return _decide(known, Action.MERGE, faces, first.number, first.rows)


def move_faces(folder: str | Path, faces: Iterable[str], to: int | str) -> Corrected:
    """Decide that faces are of a person, and not of those that they were taken for.

    Args:
        faces: ids or photos, see ``People.rows_of``.
        to: number or name of the person; "new" for one who is not there yet; "nobody" for faces that are none or not
            wanted, which are in no group until they are moved to one.
    """
    with locked(Path(folder)):
        known = read_people(folder)
        rows = np.array(known.rows_of(faces), dtype=np.int64)
        if not len(rows):
            raise Error("give one face or more, by ids or photos")
        if to == "nobody":
            return _decide(known, Action.MOVE, rows, NOBODY)
        groups = known.groups.group
        number = known.groups.highest + 1 if to == "new" else known.person(to).number
        others = np.setdiff1d(groups[rows], [NOBODY, number])
        joined, left = (np.setdiff1d(np.flatnonzero(np.isin(groups, each)), rows) for each in ([number], others))
        return _decide(known, Action.MOVE, rows, number, joined, left)


def name_person(folder: str | Path, person: int | str, name: str) -> Corrected:
    """Give a person a name; a person who has that name already becomes one with it.

    Args:
        person: number or name.
        name: one line of text; no number, as it would be taken for that of another person. A name that begins with a
            dot hides the person: later faces still join, but the page folds the group away and galleries leave it out.
    """
    name = person_name(name, numbered=True)
    with locked(Path(folder)):
        known = read_people(folder)
        named = known.person(person)
        same = [each.rows for each in known.persons if each.name == name and each.number != named.number]
        return _decide(known, Action.NAME, np.concatenate([_NONE, *same]), named.number, named.rows, name=name)


def undo_decision(folder: str | Path) -> Corrected:
    """Take the last decision back that was not taken back yet; its faces return to the groups that they left."""
    with locked(Path(folder)):
        known = read_people(folder)
        if not (decisions := standing(read_decisions(known.folder / DECISIONS))):
            raise Error(f"{folder}: nothing was decided, so there is nothing to undo")
        people = _record(known, PeopleDecision(Action.UNDO, time=_now()))
        last = decisions[-1]
        return Corrected(people, last, [each for each in sorted({*last.was}) if each in people.by_number])


def _decide(
    known: People,
    action: Action,
    faces: Rows,
    to: int,
    joined: Rows = _NONE,
    left: Rows = _NONE,
    name: str = "",
) -> Corrected:
    keys, kept, rest = (tuple(map(known.found.key, rows.tolist())) for rows in (faces, joined, left))
    was = tuple(known.groups.group[faces].tolist())
    decision = PeopleDecision(action, keys, was, to, kept, rest, name, _now())
    people = _record(known, decision)
    return Corrected(people, decision, [to] if to in people.by_number else [])


def _record(known: People, decision: PeopleDecision) -> People:
    """Store a decision, and then what it does."""
    path = known.folder / DECISIONS
    decisions = [*read_decisions(path), decision]
    write_decisions(path, decisions)
    with recorded():
        with writing(path):
            sync_names([path])
        people = people_after(known.folder, known.found, known.groups, decisions)
        save(people)
    return people


@contextmanager
def recorded() -> Iterator[None]:
    """Let an error in writing what follows from a decision say that the decision holds."""
    try:
        yield
    except WriteError as error:
        raise WriteError(f"{error}; the decision itself is recorded, so do not repeat it") from error


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
