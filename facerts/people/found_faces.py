"""The table of all faces that were found in photos, and its file: arrays of numbers and text, without pickles.

An image is known by the SHA-256 of its bytes, so a renamed photo is the same image, and a copy is no second one.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import FiniteFloat

from facerts.errors import Error
from facerts.galleries.enrollments import SEPARATOR, Enrollments, check_faces
from facerts.io.npz import ArrayFormat, ArrayType, array_types
from facerts.scoring.prepare import storable
from facerts.scoring.reasons import NOT_A_FACE

Rows = NDArray[np.int64]

SHA256_DIGITS = 64
TABLE_NAME = re.compile(r"faces-[0-9a-f]{16}\.npz")
# Boxes of one face by two detectors, or at two thresholds, overlap by more than this; those of neighbors by less.
MIN_IOU = 0.5
MAX_SIZE = 4096
WRITER = "facerts people find"
REMEDY = f"delete it and run {WRITER} again"


class Photo(NamedTuple):
    """A photo of a run; see ``FoundFaces``. One that could not be read has an error."""

    path: str
    sha256: str
    size: int
    mtime: int
    error: str = ""


class FaceKey(NamedTuple):
    """A face in whatever photo has the same bytes.

    Attributes:
        image: SHA-256 of the image's bytes.
        box: left, top, right, bottom in pixels; None if the image is an aligned crop.
    """

    image: str
    box: tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat] | None


@dataclass(frozen=True)
class FoundFaces:
    """Photos P, the different images I in them, and their faces F.

    Attributes:
        settings: everything that faces depend on besides the images, as JSON; see ``Scorer.settings``.
        sha256: ``(I,)`` text, of each image's bytes.
        path: ``(P,)`` text, where each photo is.
        image: ``(P,)`` the image that each photo shows; −1 if it could not be read.
        size: ``(P,)`` bytes of the photo's file, or of the archive that it is in; −1 if it is in none.
        mtime: ``(P,)`` when that file was modified, in nanoseconds.
        error: ``(P,)`` text, why a photo could not be read; empty for the others.
        face_image: ``(F,)`` the image of each face; faces are ordered by image and number.
        number: ``(F,)`` of each face in its image, largest first.
        box: ``(F, 4)`` left, top, right, bottom in pixels; NaN if the image is an aligned crop.
        points: ``(F, 10)`` x and y of five landmarks in turn; NaN likewise.
        embedding: ``(F, d) float32`` of unit length.
        quality: ``(F,) float32``; NaN if the model has none.
        percentile: ``(F,) float32``, 0 to 100; NaN if the model is not calibrated.
        reasons: ``(F,)`` text, what makes each face poor, joined by ``;``.
    """

    settings: Annotated[str, ArrayType(np.str_)]
    model: Annotated[str, ArrayType(np.str_)]
    model_sha256: Annotated[str, ArrayType(np.str_)]
    sha256: Annotated[NDArray[np.str_], ArrayType(np.str_, ("images",))]
    path: Annotated[NDArray[np.str_], ArrayType(np.str_, ("photos",))]
    image: Annotated[NDArray[np.int32], ArrayType(np.int32, ("photos",), low=-1, high="images")]
    size: Annotated[NDArray[np.int64], ArrayType(np.int64, ("photos",), low=-1)]
    mtime: Annotated[NDArray[np.int64], ArrayType(np.int64, ("photos",))]
    error: Annotated[NDArray[np.str_], ArrayType(np.str_, ("photos",))]
    face_image: Annotated[NDArray[np.int32], ArrayType(np.int32, ("faces",), low=0, high="images")]
    number: Annotated[NDArray[np.int32], ArrayType(np.int32, ("faces",), low=0)]
    box: Annotated[NDArray[np.float32], ArrayType(np.float32, ("faces", 4), nan=True)]
    points: Annotated[NDArray[np.float32], ArrayType(np.float32, ("faces", 10), nan=True)]
    embedding: Annotated[NDArray[np.float32], ArrayType(np.float32, ("faces", "numbers"))]
    quality: Annotated[NDArray[np.float32], ArrayType(np.float32, ("faces",), nan=True)]
    percentile: Annotated[NDArray[np.float32], ArrayType(np.float32, ("faces",), low=0, high=100, nan=True)]
    reasons: Annotated[NDArray[np.str_], ArrayType(np.str_, ("faces",))]

    def __len__(self) -> int:
        """Number of faces."""
        return len(self.face_image)

    @property
    def photos(self) -> list[Photo]:
        """The photos, in order."""
        columns = (self.path, self.image, self.size, self.mtime, self.error)
        return [
            Photo(path, str(self.sha256[image]) if image >= 0 else "", size, mtime, error)
            for path, image, size, mtime, error in zip(*(each.tolist() for each in columns), strict=True)
        ]

    def enrollments(self, rows: Rows, person: Sequence[str]) -> Enrollments:
        """Some faces as images of people, by the first photo that shows each."""
        paths = [str(self.path[self.photos_of(row)[0]]) for row in rows.tolist()]
        return Enrollments(
            np.array(person, dtype=str),
            np.array(paths, dtype=str),
            self.embedding[rows],
            self.quality[rows],
            self.percentile[rows],
            self.reasons[rows],
            self.model,
            self.model_sha256,
        )

    @cached_property
    def is_face(self) -> NDArray[np.bool_]:
        """``(F,)`` whether each face is one, as far as the model can tell."""
        return np.array([NOT_A_FACE not in self.reasons_of(row) for row in range(len(self))], dtype=bool)

    def usable(self, min_quality: float) -> NDArray[np.bool_]:
        """``(F,)`` which faces are good enough to tell people apart; of unknown quality all are that are faces."""
        good: NDArray[np.bool_] = ~(self.quality < min_quality)
        return good if min_quality == -math.inf else good & self.is_face

    def reasons_of(self, row: int) -> tuple[str, ...]:
        """What makes a face poor, most important first."""
        return tuple(filter(None, str(self.reasons[row]).split(SEPARATOR)))

    def key(self, row: int) -> FaceKey:
        """What identifies a face over all runs."""
        left, top, right, bottom = (round(side, 2) for side in self._boxes[row])
        box = None if math.isnan(left) else (left, top, right, bottom)
        return FaceKey(str(self.sha256[self.face_image[row]]), box)

    def rows_of(self, keys: Iterable[FaceKey]) -> Rows:
        """The row of each key: the face of the same image whose box overlaps most, by half at least; −1 for none."""
        return np.array([self._row_of(key) for key in keys], dtype=np.int64)

    def photos_of(self, row: int) -> Rows:
        """The photos that show the image of a face: one, or several copies."""
        return self._photos_of_images[int(self.face_image[row])]

    def rows_in(self, image: int) -> range:
        """The faces of an image."""
        return range(int(self._face_starts[image]), int(self._face_starts[image + 1]))

    def _row_of(self, key: FaceKey) -> int:
        image = self._images.get(key.image)
        rows = self.rows_in(image) if image is not None else range(0)
        if not rows:
            return -1
        boxes = [self._boxes[row] for row in rows]
        if key.box is None or any(math.isnan(box[0]) for box in boxes):
            # One of the two is an aligned crop, in which a detector that looks may find the one face.
            return rows[0] if len(rows) == 1 else -1
        overlaps = [_iou(key.box, box) for box in boxes]
        best = max(overlaps)
        return rows[overlaps.index(best)] if best >= MIN_IOU else -1

    @cached_property
    def _boxes(self) -> list[list[float]]:
        """Of the faces, as Python's numbers, with which single boxes are compared faster."""
        return self.box.tolist()  # type: ignore[no-any-return]

    @cached_property
    def _images(self) -> dict[str, int]:
        return {sha256: image for image, sha256 in enumerate(self.sha256.tolist())}

    @cached_property
    def _face_starts(self) -> Rows:
        return np.searchsorted(self.face_image, np.arange(len(self.sha256) + 1))

    @cached_property
    def _photos_of_images(self) -> list[Rows]:
        order = np.argsort(self.image, kind="stable")
        starts = np.searchsorted(self.image[order], np.arange(len(self.sha256)))
        return np.split(order, starts)[1:]


FORMAT = ArrayFormat("facerts.found-faces/1", "table of faces", WRITER, REMEDY, types=array_types(FoundFaces))
PER_FACE = [name for name, kind in FORMAT.types.items() if kind.shape[:1] == ("faces",)]


def assemble(photos: Sequence[Photo], tables: Sequence[FoundFaces]) -> FoundFaces:
    """The table of some photos, whose images are in one or more tables, of one model and with one embedding size.

    Of an image that is in several, the last counts.
    """
    wanted = dict.fromkeys(photo.sha256 for photo in photos if not photo.error)
    image_of = {sha256: image for image, sha256 in enumerate(wanted)}
    last = {sha256: table for table in tables for sha256 in table.sha256.tolist()}
    # A table without faces may not know how long their embeddings are.
    filled = [table for table in tables if len(table)] or tables[-1:]
    image = np.concatenate([_images_of(table, image_of, last)[table.face_image] for table in filled])
    faces = {name: np.concatenate([getattr(table, name) for table in filled]) for name in PER_FACE}
    order = np.lexsort((faces["number"], image))
    order = order[image[order] >= 0]
    faces = {name: column[order] for name, column in faces.items()} | {"face_image": image[order]}
    return FoundFaces(
        tables[-1].settings,
        tables[-1].model,
        tables[-1].model_sha256,
        sha256=np.array(list(wanted), dtype=f"U{SHA256_DIGITS}"),
        path=np.array([photo.path for photo in photos], dtype=str),
        image=np.array([-1 if photo.error else image_of[photo.sha256] for photo in photos], dtype=np.int32),
        size=np.array([photo.size for photo in photos], dtype=np.int64),
        mtime=np.array([photo.mtime for photo in photos], dtype=np.int64),
        error=np.array([photo.error for photo in photos], dtype=str),
        **faces,
    )


def _images_of(table: FoundFaces, image_of: dict[str, int], last: dict[str, FoundFaces]) -> NDArray[np.int32]:
    """What the images of a table are numbered in another; −1 for those that come from elsewhere, or are not in it."""
    names = table.sha256.tolist()
    return np.array([image_of.get(name, -1) if last[name] is table else -1 for name in names], dtype=np.int32)


def table_name(found: FoundFaces) -> str:
    """The name of the file of a table, which no other table has."""
    digest = hashlib.sha256()
    for name in FORMAT.types:
        values = np.asarray(getattr(found, name))
        digest.update(f"{name} {values.dtype} {values.shape} ".encode() + values.tobytes())
    return f"faces-{digest.hexdigest()[:16]}.npz"


def write_found_faces(path: Path, found: FoundFaces) -> None:
    """Write a table, which appears only when it is complete."""
    FORMAT.write(path, found)


def read_found_faces(path: Path) -> FoundFaces:
    """Read a table; see docs/limits.md for its format."""
    with FORMAT.reading(path) as arrays:
        _check(arrays)
    for name in ("path", "error"):
        arrays[name] = np.array([storable(text) for text in arrays[name].tolist()], dtype=str)
    return FoundFaces(**arrays)


def _check(arrays: Mapping[str, NDArray[Any]]) -> None:
    size = arrays["embedding"].shape[1]
    if not 0 < size <= MAX_SIZE:
        raise Error(f"its embeddings have {size:,} numbers; 1 to {MAX_SIZE:,} are allowed")
    names, image = arrays["sha256"].tolist(), arrays["image"]
    if len(set(names)) != len(names) or not all(map(_is_sha256, names)):
        raise Error("an image is not identified by a SHA-256 of its own")
    if len(np.unique(image[image >= 0])) != len(names):
        raise Error("an image is in no photo")
    if not np.array_equal(image < 0, arrays["error"] != ""):
        raise Error("a photo without an image needs an error, and no other may have one")
    if (np.diff(arrays["face_image"].astype(np.int64) << 32 | arrays["number"]) <= 0).any():
        raise Error("a face is there twice, or faces are not ordered by image and number")
    box = arrays["box"]
    if not ((box[:, 2:] > box[:, :2]).all(axis=1) | np.isnan(box).all(axis=1)).all():
        raise Error("a box is not left, top, right and bottom of an area")
    check_faces(arrays["embedding"], arrays["reasons"])


def _is_sha256(text: str) -> bool:
    return len(text) == SHA256_DIGITS and set(text) <= set("0123456789abcdef")


def _iou(box: Sequence[float], other: Sequence[float]) -> float:
    """Intersection over union of two boxes; 0 of empty ones."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    shared = max(width, 0.0) * max(height, 0.0)
    areas = [max(each[2] - each[0], 0.0) * max(each[3] - each[1], 0.0) for each in (box, other)]
    return shared / (sum(areas) - shared) if shared else 0.0
