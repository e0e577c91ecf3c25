"""The file of the groups that a run ended with: numbers of groups by face, which the next run keeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError, Error
from facerts.io.files import atomic_write
from facerts.io.npz import ArrayType, read_npz, typed_arrays
from facerts.people.found_faces import TABLE_NAME, FaceKey, FoundFaces, Rows

FORMAT = "facerts.people-groups/3"
# Groups have at most as many numbers as a spreadsheet has whole ones.
MAX_NUMBER = 1 << 53
ARRAYS = {
    "min_quality": ArrayType(np.float64, (), -np.inf, np.inf),
    "highest": ArrayType(np.int64, (), 0, MAX_NUMBER),
    "decisions": ArrayType(np.int64, (), 0),
    "table": ArrayType(np.str_),
    "sha256": ArrayType(np.str_, ("images",)),
    "face_image": ArrayType(np.int32, ("faces",), 0, "images"),
    "box": ArrayType(np.float32, ("faces", 4), nan=True),
    "group": ArrayType(np.int64, ("faces",), -1),
    "probability": ArrayType(np.float32, ("faces",), 0, 1, nan=True),
    "suggested": ArrayType(np.int64, ("faces",), -1),
    "alike": ArrayType(np.int64, ("pairs", 2), -1),
    "alike_probability": ArrayType(np.float64, ("pairs",), 0, 1),
}
# Faces may take MAX_BYTES of memory plus MAX_RATIO times the file.
MAX_BYTES = 8 << 20
MAX_RATIO = 8
FACE_BYTES = 256


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
        alike: pairs of groups that may be of one person, with the probability of it, likeliest first.
        decisions: number of decisions that were carried out, those that take back others included.
        table: name of the file of the table.
    """

    group: Rows
    probability: NDArray[np.float32]
    suggested: Rows
    highest: int
    min_quality: float
    alike: tuple[tuple[int, int, float], ...] = ()
    decisions: int = 0
    table: str = ""

    @classmethod
    def none(cls, faces: int, min_quality: float) -> PeopleGroups:
        """No groups yet."""
        nobody = np.full(faces, -1, dtype=np.int64)
        return cls(nobody, np.full(faces, np.nan, dtype=np.float32), nobody, 0, min_quality)


def write_groups(path: Path, found: FoundFaces, groups: PeopleGroups) -> None:
    """Write the groups of a table, with the faces that they are of."""
    arrays = {
        "format": np.array(FORMAT),
        "min_quality": np.array(float(groups.min_quality)),
        "highest": np.array(groups.highest),
        "decisions": np.array(groups.decisions),
        "table": np.array(groups.table),
        "sha256": found.sha256,
        "face_image": found.face_image,
        "box": found.box,
        "group": groups.group,
        "probability": groups.probability,
        "suggested": groups.suggested,
        "alike": np.array([pair[:2] for pair in groups.alike], dtype=np.int64).reshape(-1, 2),
        "alike_probability": np.array([probability for *_, probability in groups.alike]),
    }
    with atomic_write(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


@dataclass(frozen=True)
class StoredGroups:
    """The content of a file of groups.

    Attributes:
        table: name of the file of the faces that they are of.
    """

    arrays: dict[str, NDArray[Any]]

    @property
    def table(self) -> str:
        return str(self.arrays["table"])

    def of(self, found: FoundFaces) -> PeopleGroups:
        """The groups of the faces of a table, which may be a later one."""
        arrays = self.arrays
        names, boxes = arrays["sha256"].tolist(), arrays["box"].astype(np.float64).round(2)
        keys = [
            FaceKey(names[image], None if np.isnan(box).any() else (box[0], box[1], box[2], box[3]))
            for image, box in zip(arrays["face_image"].tolist(), boxes, strict=True)
        ]
        rows = found.rows_of(keys)
        there = rows >= 0
        group, suggested = (np.full(len(found), -1, dtype=np.int64) for _ in range(2))
        probability = np.full(len(found), np.nan, dtype=np.float32)
        group[rows[there]] = arrays["group"][there]
        suggested[rows[there]] = arrays["suggested"][there]
        probability[rows[there]] = arrays["probability"][there]
        chances = arrays["alike_probability"].tolist()
        return PeopleGroups(
            group,
            probability,
            suggested,
            int(arrays["highest"]),
            float(arrays["min_quality"]),
            tuple(
                (one, other, chance)
                for (one, other), chance in zip(arrays["alike"].tolist(), chances, strict=True)
            ),
            int(arrays["decisions"]),
            self.table,
        )


def read_groups_file(path: Path) -> StoredGroups:
    """Read groups."""
    arrays = read_npz(path)
    if str(arrays.get("format")) != FORMAT:
        raise DataError(f"{path}: not a file of groups of format {FORMAT}; facerts people find writes one")
    try:
        arrays = typed_arrays(arrays, ARRAYS)
        _check(arrays, MAX_BYTES + MAX_RATIO * path.stat().st_size)
    except Error as error:
        raise DataError(
            f"{path}: broken groups: {error}; delete the file and run facerts people find again"
        ) from error
    return StoredGroups(arrays)


def _check(arrays: dict[str, NDArray[Any]], limit: int) -> None:
    """Check what the types of arrays do not say."""
    faces, pairs = len(arrays["face_image"]), len(arrays["alike"])
    if (faces + pairs) * FACE_BYTES > limit:
        raise Error(
            f"{faces:,} faces and {pairs:,} pairs of groups take more memory than a file of its size may"
        )
    for name in ("group", "suggested", "alike"):
        if ((arrays[name] == 0) | (arrays[name] > arrays["highest"])).any():
            raise Error(f"the array {name!r} has a number that no group has")
    if not TABLE_NAME.fullmatch(str(arrays["table"])):
        raise Error(f"{str(arrays['table'])!r} is no name of a table of faces")
