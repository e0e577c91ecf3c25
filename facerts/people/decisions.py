"""What people decided about groups of faces: a file with a line of JSON for each decision.

A decision names its faces by the SHA-256 of their images and by their boxes, never by groups alone, so that it holds in
every later run, whatever the groups are then, whatever the photos are called, and with another detector.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError

from facerts.errors import DataError, Error, problems_text
from facerts.galleries.person_name import person_name
from facerts.io.files import atomic_write, refuse_link, regular
from facerts.io.json_file import parse_json
from facerts.people.found_faces import FaceKey
from facerts.people.groups_file import MAX_NUMBER

FORMAT = {"format": "facerts.people-decisions/3"}
# A file of this size has millions of faces.
MAX_BYTES = 1 << 28
# The group of faces that are in none.
NOBODY = -1


class Action(str, Enum):
    """What was decided.

    MERGE: the faces and those that they joined are of one person.
    MOVE: the same, and the faces are not of the people whom they left; those that joined nobody are in no group.
    NAME: the faces and those that they joined are of one person of a name.
    UNDO: the last decision that stands is taken back.
    """

    MERGE = "merge"
    MOVE = "move"
    NAME = "name"
    UNDO = "undo"


def _group(number: int) -> int:
    # So that there are numbers left for groups that come later.
    if number != NOBODY and not 1 <= number <= MAX_NUMBER // 2:
        raise ValueError(f"{number} is no number of a group")
    return number


def _name(name: str) -> str:
    try:
        return person_name(name, numbered=True)
    except Error as error:
        raise ValueError(str(error)) from error


Group = Annotated[int, AfterValidator(_group)]


@dataclass(frozen=True)
class PeopleDecision:
    """A decision.

    Attributes:
        faces: those whose group changes.
        was: number of the group that each of them left.
        to: number of the group that they get.
        joined: the faces of the person whose they are now.
        left: the faces that were in one group with them and stay.
        time: when, in UTC.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    action: Action
    faces: tuple[FaceKey, ...] = ()
    was: tuple[Group, ...] = ()
    to: Group = NOBODY
    joined: tuple[FaceKey, ...] = ()
    left: tuple[FaceKey, ...] = ()
    name: Annotated[str, AfterValidator(_name)] = ""
    time: str = ""

    def __post_init__(self) -> None:
        if (self.action is Action.NAME) != bool(self.name):
            raise ValueError(f"{self.action.value} has the name {self.name!r}")
        if len(self.faces) != len(self.was):
            raise ValueError(f"{len(self.faces)} faces left {len(self.was)} groups")
        if (self.action is Action.UNDO) == bool(self.faces or self.joined):
            raise ValueError(f"{self.action.value} has {len(self.faces) + len(self.joined)} faces")


_DECISION = TypeAdapter(PeopleDecision)


def read_decisions(path: Path) -> list[PeopleDecision]:
    """All decisions, in order; none if there is no file yet."""
    try:
        with open(path, "rb", opener=regular) as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if len(data) > MAX_BYTES:
        raise DataError(f"{path}: larger than {MAX_BYTES:,} bytes; it is no file of decisions")
    first, *lines = data.removesuffix(b"\n").split(b"\n")
    if not first or parse_json(first, f"{path}, line 1") != FORMAT:
        raise DataError(
            f"{path}: not a file of decisions of format {FORMAT['format']}; move it elsewhere, or restore it"
        )
    return [_decision(line, f"{path}, line {number}") for number, line in enumerate(lines, 2)]


def write_decisions(path: Path, decisions: Iterable[PeopleDecision]) -> None:
    """Write all decisions, which survive a power failure as soon as the file's name is synced."""
    refuse_link(path)
    contents = (_DECISION.dump_python(each, mode="json", exclude_defaults=True) for each in decisions)
    with atomic_write(path, "w", sync_name=False) as file:
        file.writelines(json.dumps(content) + "\n" for content in (FORMAT, *contents))


def standing(decisions: Iterable[PeopleDecision]) -> list[PeopleDecision]:
    """The decisions that were not taken back, in order."""
    stack: list[PeopleDecision] = []
    for decision in decisions:
        if decision.action is not Action.UNDO:
            stack.append(decision)
        elif stack:
            stack.pop()
    return stack


def _decision(line: bytes, where: str) -> PeopleDecision:
    try:
        return _DECISION.validate_python(parse_json(line, where))
    except ValidationError as error:
        raise DataError(f"{where}: not a decision ({problems_text(error.errors())})") from error
