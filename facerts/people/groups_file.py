"""The file of the groups that a run or a correction ended with, whose numbers the next run keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import Error
from facerts.io.npz import ArrayFormat, ArrayType, array_types
from facerts.people.found_faces import REMEDY, TABLE_NAME, WRITER, FoundFaces, Rows

# Groups have at most as many numbers as a spreadsheet has whole ones.
MAX_NUMBER = 1 << 53


@dataclass(frozen=True)
class PeopleGroups:
    """Groups of the faces of a table.

    Attributes:
        group: ``(F,)`` number of each face's group, from 1; −1 if it is in none.
        probability: ``(F,)`` how likely each face is of the person of its group, or of the suggested one; NaN if that
            is not known.
        suggested: ``(F,)`` the group that a face in none is most like; −1 for none.
        highest: the highest number that a group ever had, as none is used twice.
        min_quality: faces below this quality join no groups with others; −inf if every face may.
        alike: ``(A, 2)`` pairs of groups that may be of one person, likeliest first.
        alike_probability: ``(A,)`` the probability of it.
        decisions: number of decisions that were carried out, those that take back others included.
        table: name of the file of the table.
    """

    group: Annotated[Rows, ArrayType(np.int64, ("faces",), low=-1)]
    probability: Annotated[NDArray[np.float32], ArrayType(np.float32, ("faces",), low=0, high=1, nan=True)]
    suggested: Annotated[Rows, ArrayType(np.int64, ("faces",), low=-1)]
    highest: Annotated[int, ArrayType(np.int64, low=0, high=MAX_NUMBER)]
    min_quality: Annotated[float, ArrayType(np.float64, low=-np.inf, high=np.inf)]
    alike: Annotated[Rows, ArrayType(np.int64, ("pairs", 2), low=-1)]
    alike_probability: Annotated[NDArray[np.float64], ArrayType(np.float64, ("pairs",), low=0, high=1)]
    decisions: Annotated[int, ArrayType(np.int64, low=0)]
    table: Annotated[str, ArrayType(np.str_)]

    @classmethod
    def none(cls, faces: int, min_quality: float, highest: int = 0) -> PeopleGroups:
        """No groups yet."""
        nobody, unknown = np.full(faces, -1, dtype=np.int64), np.full(faces, np.nan, dtype=np.float32)
        pairs = np.zeros((0, 2), dtype=np.int64)
        return cls(nobody, unknown, nobody, highest, min_quality, pairs, np.zeros(0), 0, "")

    def carried(self, found: FoundFaces | None, later: FoundFaces) -> PeopleGroups:
        """The groups of the same faces in a later table; ``found`` is their own, None for groups of no faces."""
        rows = later.rows_of(() if found is None else map(found.key, range(len(found))))
        there = rows >= 0

        def carry(values: NDArray[Any], nothing: float) -> NDArray[Any]:
            carried = np.full(len(later), nothing, dtype=values.dtype)
            carried[rows[there]] = values[there]
            return carried

        return replace(
            self,
            group=carry(self.group, -1),
            probability=carry(self.probability, np.nan),
            suggested=carry(self.suggested, -1),
        )


FORMAT = ArrayFormat("facerts.people-groups/4", "file of groups", WRITER, REMEDY, types=array_types(PeopleGroups))


def write_groups(path: Path, groups: PeopleGroups) -> None:
    """Write groups."""
    FORMAT.write(path, groups)


def read_groups_file(path: Path) -> PeopleGroups:
    """Read groups."""
    with FORMAT.reading(path) as arrays:
        for name in ("group", "suggested", "alike"):
            if ((arrays[name] == 0) | (arrays[name] > arrays["highest"])).any():
                raise Error(f"the array {name!r} has a number that no group has")
        if not TABLE_NAME.fullmatch(arrays["table"]):
            raise Error(f"{arrays['table']!r} is no name of a table of faces")
    return PeopleGroups(**arrays)
