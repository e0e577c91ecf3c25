"""What people decided about groups of faces: an append-only file, a line of JSON for each decision.

A decision names its faces by the SHA-256 of their images and by their boxes, never by groups alone, so that it holds in
every later run, whatever the groups are then, whatever the photos are called, and with another detector.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError

from facerts.errors import DataError, Error, problems_text
from facerts.galleries.person_name import person_name
from facerts.io.files import atomic_write, refuse_link, regular, writing
from facerts.io.json_file import parse_json
from facerts.people.found_faces import FaceKey
from facerts.people.groups_file import MAX_NUMBER

FORMAT = {"format": "facerts.people-decisions/2"}
# A file of this size has millions of faces.
MAX_BYTES = 1 << 28


class Action(str, Enum):
    """What was decided of sets of faces.

    MERGE: all faces of all sets are of one person.
    SPLIT: the first set is of one person, who is not that of the second.
    MOVE: the first set is of the same person as the second, who is not that of the third.
    NAME: the first set is of one person of a name; the other sets had that name before.
    IGNORE: the first set is of one person, who is hidden.
    SHOW: the person of the first set is hidden no longer.
    REMOVE: the first set is in no group.
    RESTORE: the first set is removed no longer.
    UNDO: the last decision that stands is taken back.
    """

    MERGE = "merge"
    SPLIT = "split"
    MOVE = "move"
    NAME = "name"
    IGNORE = "ignore"
    SHOW = "show"
    REMOVE = "remove"
    RESTORE = "restore"
    UNDO = "undo"


# Sets of faces that each decision has; None for one or more.
SETS = {
    Action.MERGE: None,
    Action.SPLIT: 2,
    Action.MOVE: 3,
    Action.NAME: None,
    Action.IGNORE: 1,
    Action.SHOW: 1,
    Action.REMOVE: 1,
    Action.RESTORE: 1,
    Action.UNDO: 0,
}


@dataclass(frozen=True)
class DecidedFace:
    """A face that a decision is about.

    Attributes:
        image: SHA-256 of the image's bytes.
        box: left, top, right and bottom in pixels; None if the image is an aligned crop.
        was: number of the group that the face left by the decision, −1 if it was in none; None if it stayed.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    image: str
    box: tuple[float, float, float, float] | None = None
    was: int | None = None

    def __post_init__(self) -> None:
        _check_group(self.was)

    @property
    def key(self) -> FaceKey:
        """What identifies the face."""
        return FaceKey(self.image, self.box)


def _name(name: str) -> str:
    try:
        return person_name(name, numbered=True)
    except Error as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True)
class PeopleDecision:
    """A decision.

    Attributes:
        action: what was decided.
        faces: the sets of faces, see ``Action``.
        name: of the person; empty unless one was given.
        time: when, in UTC.
        to: number of the group that the faces get that left theirs, −1 if they are in none; None if none left.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    action: Action
    faces: tuple[tuple[DecidedFace, ...], ...] = ()
    name: Annotated[str, AfterValidator(_name)] = ""
    time: str = ""
    to: int | None = None

    def __post_init__(self) -> None:
        if (self.action is Action.NAME) != bool(self.name):
            raise ValueError(f"{self.action.value} has the name {self.name!r}")
        count = SETS[self.action]
        if len(self.faces) != count if count is not None else not self.faces:
            raise ValueError(f"{self.action.value} has {len(self.faces)} sets of faces")
        _check_group(self.to)
        if (self.to is None) != (not self.moved):
            raise ValueError("faces leave their groups for none, or none do for one")

    @property
    def moved(self) -> list[DecidedFace]:
        """The faces that leave their groups."""
        return [face for each in self.faces for face in each if face.was is not None]


def _check_group(number: int | None) -> None:
    # So that there are numbers left for groups that come later.
    if number is not None and number != -1 and not 1 <= number <= MAX_NUMBER // 2:
        raise ValueError(f"{number} is no number of a group")


_DECISION = TypeAdapter(PeopleDecision)


def now() -> str:
    """The time of a decision."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def read_decisions(path: Path) -> list[PeopleDecision]:
    """All decisions, in order; none if there is no file yet.

    A last line without an end was cut off by a power failure, before it was confirmed, and is not read.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if len(data) > MAX_BYTES:
        raise DataError(f"{path}: larger than {MAX_BYTES:,} bytes; it is no file of decisions")
    first, *lines = data.split(b"\n")[:-1] or [b""]
    if not first or parse_json(first, f"{path}, line 1") != FORMAT:
        raise DataError(
            f"{path}: not a file of decisions of format {FORMAT['format']}; move it elsewhere, or restore it"
        )
    return [_decision(line, f"{path}, line {number}") for number, line in enumerate(lines, 2)]


def append_decision(path: Path, decision: PeopleDecision) -> None:
    """Add a decision; when this returns it survives a power failure."""
    refuse_link(path)
    if not path.exists():
        with atomic_write(path, "w") as file:
            file.write(json.dumps(FORMAT) + "\n")
    line = json.dumps(_content(decision), ensure_ascii=True) + "\n"
    # Not buffered, as closing would write again what could not be written.
    with writing(path), open(path, "r+b", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Error(f"{path}: not a file; move it elsewhere")
        end = _whole_lines(path)
        try:
            file.truncate(end)
            file.seek(end)
            if file.write(line.encode()) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(end)
            raise


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


def _content(decision: PeopleDecision) -> dict[str, object]:
    """A decision as JSON values, without what it does not have."""
    sets: Sequence[Sequence[DecidedFace]] = decision.faces
    faces = [
        [{name: value for name, value in asdict(face).items() if value is not None} for face in each]
        for each in sets
    ]
    content = {
        "action": decision.action.value,
        "faces": faces,
        "name": decision.name,
        "time": decision.time,
        "to": decision.to,
    }
    return {name: value for name, value in content.items() if value}


def _whole_lines(path: Path) -> int:
    """Bytes of a file up to the end of its last whole line."""
    return path.read_bytes().rfind(b"\n") + 1
