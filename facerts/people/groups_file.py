"""The file of the groups that a run ended with: numbers of groups by face, which the next run keeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.io.files import atomic_write
from facerts.io.npz import read_npz
from facerts.people.found_faces import FaceKey, FoundFaces, Rows

FORMAT = "facerts.people-groups/2"
ARRAYS = {
    "min_quality": ("f", 0),
    "highest": ("iu", 0),
    "decisions": ("iu", 0),
    "sha256": ("U", 1),
    "face_image": ("iu", 1),
    "box": ("f", 2),
    "group": ("iu", 1),
    "probability": ("f", 1),
    "suggested": ("iu", 1),
    "alike": ("iu", 2),
    "alike_probability": ("f", 1),
}
PER_FACE = ("face_image", "box", "group", "probability", "suggested")
# Groups have at most as many numbers as a spreadsheet has whole ones.
MAX_NUMBER = 1 << 53
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
    """

    group: Rows
    probability: NDArray[np.float32]
    suggested: Rows
    highest: int
    min_quality: float
    alike: tuple[tuple[int, int, float], ...] = ()
    decisions: int = 0

    @classmethod
    def none(cls, faces: int, min_quality: float) -> PeopleGroups:
        """No groups yet."""
        nobody = np.full(faces, -1, dtype=np.int64)
        return cls(nobody, np.full(faces, np.nan, dtype=np.float32), nobody, 0, min_quality)


def write_groups(path: Path, found: FoundFaces, groups: PeopleGroups) -> None:
    """Write the groups of a table, with the faces that they are of.

    Raises:
        WriteError: the file cannot be written.
    """
    arrays = {
        "format": np.array(FORMAT),
        "min_quality": np.array(float(groups.min_quality)),
        "highest": np.array(groups.highest),
        "decisions": np.array(groups.decisions),
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


def read_groups_file(path: Path, found: FoundFaces) -> PeopleGroups:
    """Read groups, for the faces of a table, which may have changed since.

    Raises:
        DataError: the file cannot be read, or has no such groups.
    """
    arrays = read_npz(path)
    if str(arrays.get("format")) != FORMAT:
        raise DataError(f"{path}: not a file of groups of format {FORMAT}; facerts people find writes one")
    if problem := _problem(arrays, MAX_BYTES + MAX_RATIO * path.stat().st_size):
        raise DataError(
            f"{path}: broken groups: {problem}; delete the file and run facerts people find again"
        )
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
    )


def _problem(arrays: dict[str, NDArray[Any]], limit: int) -> str:
    """What contradicts the format; empty if nothing does."""
    for name, (kinds, axes) in ARRAYS.items():
        if name not in arrays:
            return f"there is no array {name!r}"
        if arrays[name].dtype.kind not in kinds or arrays[name].ndim != axes:
            return f"the array {name!r} is {arrays[name].ndim}-dimensional {arrays[name].dtype}"
    faces = len(arrays["face_image"])
    if any(len(arrays[name]) != faces for name in PER_FACE) or arrays["box"].shape[1] != 4:
        return "its arrays of faces differ in length, or boxes have not 4 numbers"
    pairs = len(arrays["alike"])
    if (faces + pairs) * FACE_BYTES > limit:
        return f"{faces:,} faces and {pairs:,} pairs of groups take more memory than a file of its size may"
    if faces and not 0 <= arrays["face_image"].min() <= arrays["face_image"].max() < len(arrays["sha256"]):
        return "a face is in an image that is not listed"
    highest = arrays["highest"]
    if not 0 <= highest <= MAX_NUMBER:
        return "its highest number is none of a group"
    if arrays["decisions"] < 0:
        return "it has fewer than no decisions"
    for name in ("group", "suggested"):
        if faces and (((arrays[name] < 1) & (arrays[name] != -1)) | (arrays[name] > highest)).any():
            return f"the array {name!r} has a number that no group has"
    if np.isnan(arrays["min_quality"]):
        return "its minimum quality is no number"
    if arrays["alike"].shape != (len(arrays["alike_probability"]), 2):
        return "its pairs of groups and their probabilities differ in length"
    for name in ("probability", "alike_probability"):
        if ((arrays[name] < 0) | (arrays[name] > 1)).any():
            return "a probability is not from 0 to 1"
    return ""
