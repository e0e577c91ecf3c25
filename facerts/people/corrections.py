"""Corrections of groups by people: each is stored as a decision that every later run obeys, and takes effect at once.

A correction moves the faces that it names and no others; the next ``find_people`` takes it into account for all faces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from facerts.errors import Error, WriteError
from facerts.galleries.person_name import person_name
from facerts.io.files import locked
from facerts.people.decisions import (
    Action,
    DecidedFace,
    PeopleDecision,
    append_decision,
    now,
    read_decisions,
    standing,
)
from facerts.people.found_faces import Rows
from facerts.people.people import People, Person
from facerts.people.people_folder import DECISIONS, people_after, read_people, save


@dataclass(frozen=True)
class Corrected:
    """A correction.

    Attributes:
        people: after it.
        numbers: of the people that it is about, as far as they are still there.
        faces: number of faces that changed their groups, or were removed or restored.
        action: what was done; of an undo, what was taken back.
    """

    people: People
    numbers: tuple[int, ...]
    faces: int
    action: str


@dataclass(frozen=True)
class _Change:
    """What a correction decides.

    Attributes:
        sets: the rows that the decision names, see ``Action``.
        moved: rows whose group changes.
        to: number of the group that these get; −1 for none, 0 for a new one.
    """

    action: Action
    sets: Sequence[Rows]
    moved: Rows
    to: int
    name: str = ""


def merge_people(folder: str | Path, people: Sequence[int | str]) -> Corrected:
    """Decide that two or more people are one; the first keeps its number and its name.

    Args:
        folder: of ``find_people``.
        people: their numbers or names.
    """

    def decide(known: People) -> _Change:
        persons = _distinct(known, people)
        if len(persons) < 2:
            raise Error("a merge needs two different people; give their numbers or names")
        rows = [_in_order(person) for person in persons]
        return _Change(Action.MERGE, rows, np.concatenate(rows[1:]), persons[0].number)

    return _correct(folder, decide)


def split_person(folder: str | Path, person: int | str, faces: Iterable[str]) -> Corrected:
    """Decide that faces of a person are of another one, and together; they get a new number.

    Args:
        folder: of ``find_people``.
        person: number or name.
        faces: ids or photos, see ``People.rows_of``.
    """

    def decide(known: People) -> _Change:
        whole, rows = known.person(person), _rows(known, faces)
        if strange := [row for row in rows.tolist() if known.groups.group[row] != whole.number]:
            raise Error(f"{known.face_id(strange[0])} is not a face of {whole.title}; nothing was changed")
        rest = np.setdiff1d(whole.rows, rows)
        if not len(rest):
            raise Error(f"these are all faces of {whole.title}; leave some, or nothing is split")
        return _Change(Action.SPLIT, [rows, rest], rows, 0)

    return _correct(folder, decide)


def move_faces(folder: str | Path, faces: Iterable[str], to: int | str | None) -> Corrected:
    """Decide that faces are of a person, and not of those that they were taken for.

    Args:
        folder: of ``find_people``.
        faces: ids or photos, see ``People.rows_of``.
        to: number or name of the person; None for a new one.
    """

    def decide(known: People) -> _Change:
        rows = _rows(known, faces)
        if removed := rows[known.constraints.removed[rows]].tolist():
            raise Error(
                f"{known.face_id(removed[0])} was removed; bring it back first: facerts people remove --restore"
            )
        target = None if to is None else known.person(to)
        joined = np.zeros(0, np.int64) if target is None else np.setdiff1d(target.rows, rows)
        number = 0 if target is None else target.number
        left = set(known.groups.group[rows].tolist()) - {-1, number}
        rest = np.flatnonzero(np.isin(known.groups.group, list(left)))
        return _Change(Action.MOVE, [rows, joined, np.setdiff1d(rest, rows)], rows, number)

    return _correct(folder, decide)


def name_person(folder: str | Path, person: int | str, name: str) -> Corrected:
    """Give a person a name; a person who has that name already becomes one with it.

    Args:
        folder: of ``find_people``.
        person: number or name.
        name: one line of text; no number, as it would be taken for that of another person.
    """
    name = person_name(name, numbered=True)

    def decide(known: People) -> _Change:
        first = known.person(person)
        namesakes = [each for each in known.persons if each.name == name and each.number != first.number]
        rows = [_in_order(each) for each in (first, *namesakes)]
        return _Change(
            Action.NAME, rows, np.concatenate([np.zeros(0, np.int64), *rows[1:]]), first.number, name
        )

    return _correct(folder, decide)


def ignore_person(folder: str | Path, person: int | str, *, restore: bool = False) -> Corrected:
    """Hide a person: the group stays, and later faces join it, but the page folds it away and galleries leave it out.

    Args:
        folder: of ``find_people``.
        person: number or name.
        restore: show the person again instead.
    """

    def decide(known: People) -> _Change:
        each = known.person(person)
        action = Action.SHOW if restore else Action.IGNORE
        return _Change(action, [_in_order(each)], np.zeros(0, np.int64), each.number)

    return _correct(folder, decide)


def remove_faces(folder: str | Path, faces: Iterable[str], *, restore: bool = False) -> Corrected:
    """Take faces out for good, because they are none or not wanted, whatever their photos are called later.

    Args:
        folder: of ``find_people``.
        faces: ids or photos, see ``People.rows_of``.
        restore: bring removed faces back instead; the next run places them.
    """

    def decide(known: People) -> _Change:
        rows = _rows(known, faces)
        if wrong := rows[known.constraints.removed[rows] != restore].tolist():
            state = "is not removed" if restore else "is removed already"
            raise Error(f"{known.face_id(wrong[0])} {state}; nothing was changed")
        return _Change(Action.RESTORE if restore else Action.REMOVE, [rows], rows, -1)

    return _correct(folder, decide)


def undo_decision(folder: str | Path) -> Corrected:
    """Take the last decision back that was not taken back yet; its faces return to the groups that they left.

    Args:
        folder: of ``find_people``.
    """
    folder = Path(folder)
    with locked(folder):
        people = read_people(folder)
        if not (decisions := standing(read_decisions(folder / DECISIONS))):
            raise Error(f"{folder}: nothing was decided, so there is nothing to undo")
        corrected = _record(people, PeopleDecision(Action.UNDO, time=now()))
        rows = people.found.rows_of(face.key for face in decisions[-1].moved)
    rows = rows[rows >= 0]
    numbers = sorted(set(corrected.groups.group[rows].tolist()) - {-1})
    return Corrected(corrected, tuple(numbers), len(rows), decisions[-1].action.value)


def _correct(folder: str | Path, decide: Callable[[People], _Change]) -> Corrected:
    folder = Path(folder)
    with locked(folder):
        people = read_people(folder)
        change = decide(people)
        number = change.to or people.groups.highest + 1
        was = {row: int(people.groups.group[row]) for row in change.moved.tolist()}
        sets = tuple(
            tuple(DecidedFace(*people.found.key(row), was.get(row)) for row in rows.tolist())
            for rows in change.sets
        )
        decision = PeopleDecision(change.action, sets, change.name, now(), number if was else None)
        corrected = _record(people, decision)
    numbers = (number,) if number > 0 else ()
    return Corrected(corrected, numbers, len(was), change.action.value)


def _record(people: People, decision: PeopleDecision) -> People:
    """Store a decision, and then what it does."""
    append_decision(people.folder / DECISIONS, decision)
    with recorded():
        decisions = read_decisions(people.folder / DECISIONS)
        corrected = people_after(people.folder, people.found, people.groups, decisions)
        save(corrected)
    return corrected


@contextmanager
def recorded() -> Iterator[None]:
    """Let an error in writing what follows from a decision say that the decision holds."""
    try:
        yield
    except WriteError as error:
        raise WriteError(f"{error}; the decision itself is recorded, so do not repeat it") from error


def _distinct(people: People, given: Sequence[int | str]) -> list[Person]:
    persons = {person.number: person for person in map(people.person, given)}
    return list(persons.values())


def _in_order(person: Person) -> Rows:
    return np.sort(person.rows)


def _rows(people: People, faces: Iterable[str]) -> Rows:
    rows = np.array(people.rows_of(faces), dtype=np.int64)
    if not len(rows):
        raise Error("give one face or more, by ids or photos")
    return rows
