"""Photos to a table of faces, in blocks that survive an interruption, without looking at any image twice.

A photo whose file has the size and the modification time of the last run is unchanged and is not even read. Any other
is read, and found again by the SHA-256 of its bytes wherever it is now; only images that are new are scored. Images
that could not be decoded are tried again in each run, as what was missing may be there now.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.errors import DataError, ImageError
from facerts.galleries.enrollments import SEPARATOR
from facerts.images import decode, encode_jpeg
from facerts.io.files import atomic_write, sync_names, writing
from facerts.people.found_faces import (
    SHA256_DIGITS,
    FoundFaces,
    Photo,
    assemble,
    read_found_faces,
    write_found_faces,
)
from facerts.scoring.face import Face
from facerts.scoring.prepare import LazyImage, storable
from facerts.scoring.scorer import Scorer

# Images that an interruption may lose.
BLOCK_SIZE = 200
CROP_QUALITY = 90
# Columns of the table that a face's row has.
POINTS = 10


@dataclass(frozen=True)
class Scan:
    """The faces of a run, and how they were found.

    Attributes:
        found: the table.
        scored: number of images that were scored now.
        damaged: problems of blocks of an interrupted run, whose images were scored again.
    """

    found: FoundFaces
    scored: int
    damaged: tuple[str, ...] = ()


@dataclass
class FindJob:
    """Finds the faces of photos.

    Attributes:
        scorer: the model, and the detector for photos.
        folder: where finished blocks are kept until the run has ended.
        crops: where each face is kept as a small image, see ``crop_name``.
    """

    scorer: Scorer
    folder: Path
    crops: Path
    _tables: list[FoundFaces] = field(default_factory=list)
    _photos: list[Photo] = field(default_factory=list)
    _faces: list[list[Face]] = field(default_factory=list)
    _scored: int = 0

    def run(
        self, source: Source, earlier: FoundFaces | None, advance: Callable[[int], None] | None = None
    ) -> Scan:
        """Find the faces of all photos of a source.

        Args:
            earlier: the table of the last run.
            advance: called with the number of photos that are done since the last call.
        """
        damaged = self._open(earlier)
        known = {sha256 for table in self._tables for sha256 in table.sha256.tolist()}
        unchanged = {state: sha256 for table in self._tables for state, sha256 in _states(table)}
        photos: list[Photo | None] = [None] * len(source)
        waiting: deque[tuple[int, Photo]] = deque()
        errors: dict[str, str] = {}
        advance = advance or (lambda count: None)

        def new_images() -> Iterator[LazyImage]:
            queued = set(known)
            for index in range(len(source)):
                photo = _identify(source, index, unchanged)
                photos[index] = photo
                if photo.error or photo.sha256 in queued:
                    advance(1)
                    continue
                queued.add(photo.sha256)
                waiting.append((index, photo))
                yield LazyImage(source.location(index), partial(_load, source, index, photo.sha256))

        scored = self.scorer.score_lazy(new_images(), self.scorer.row_builder(None))
        try:
            for faces in scored:
                _, photo = waiting.popleft()
                if faces[0].row.error is not None:
                    errors[photo.sha256] = faces[0].row.error
                else:
                    self._add(photo, faces)
                advance(1)
        finally:
            self._write_block()
        done = [photo for photo in photos if photo is not None]
        done = [
            photo._replace(error=errors[photo.sha256]) if photo.sha256 in errors else photo for photo in done
        ]
        return Scan(assemble(done, self._tables), self._scored, tuple(damaged))

    def close(self) -> None:
        """Remove the blocks, when the table that was made of them is written."""
        with writing(self.folder):
            shutil.rmtree(self.folder)

    def _open(self, earlier: FoundFaces | None) -> list[str]:
        """Take over what was found before with the same settings."""
        settings = settings_text(self.scorer)
        self._tables = [self._table([], [])]
        damaged = []
        if earlier is not None and earlier.settings == settings:
            self._tables.append(earlier)
        for path in self._blocks():
            try:
                table = read_found_faces(path)
            except DataError as error:
                damaged.append(f"{error}; its images are scored again")
                path.unlink()
                continue
            if table.settings == settings:
                self._tables.append(table)
            else:
                path.unlink()
        return damaged

    def _blocks(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("[0-9]*.npz") if path.stem.isdecimal())

    def _add(self, photo: Photo, faces: list[Face]) -> None:
        self._photos.append(photo)
        self._faces.append([face for face in faces if face.vector is not None])
        self._scored += 1
        if len(self._photos) >= BLOCK_SIZE:
            self._write_block()

    def _write_block(self) -> None:
        """Put what was scored since the last block on disk: first the crops, so that no face is without one."""
        if not self._photos:
            return
        written = []
        for photo, faces in zip(self._photos, self._faces, strict=True):
            for face in faces:
                assert face.crop is not None
                assert face.row.face is not None
                path = self.crops / crop_name(photo.sha256, face.row.face)
                with atomic_write(path, sync_name=False) as file:
                    file.write(encode_jpeg(face.crop, CROP_QUALITY))
                written.append(path)
        sync_names(written)
        table = self._table(self._photos, self._faces)
        last = [int(path.stem) for path in self._blocks()][-1:]
        write_found_faces(self.folder / f"{(last[0] if last else 0) + 1:09d}.npz", table)
        self._tables.append(table)
        self._photos, self._faces = [], []

    def _table(self, photos: Sequence[Photo], faces: Sequence[Sequence[Face]]) -> FoundFaces:
        flat = [(image, face) for image, of_image in enumerate(faces) for face in of_image]
        rows = [face.row for _, face in flat]
        embeddings = [face.vector for _, face in flat if face.vector is not None]
        size = self.scorer.recognizer.description.embedding_size or 1
        nothing = np.zeros((0, size), dtype=np.float32)
        return FoundFaces(
            settings_text(self.scorer),
            storable(self.scorer.recognizer.name),
            self.scorer.recognizer.sha256,
            path=np.array([photo.path for photo in photos], dtype=str),
            image=np.arange(len(photos), dtype=np.int32),
            size=np.array([photo.size for photo in photos], dtype=np.int64),
            mtime=np.array([photo.mtime for photo in photos], dtype=np.int64),
            error=np.array([""] * len(photos), dtype=str),
            sha256=np.array([photo.sha256 for photo in photos], dtype=f"U{SHA256_DIGITS}"),
            face_image=np.array([image for image, _ in flat], dtype=np.int32),
            number=np.array([row.face for row in rows], dtype=np.int32),
            box=_numbers([row.box for row in rows], 4),
            points=_numbers([row.points for row in rows], POINTS),
            embedding=np.stack(embeddings).astype(np.float32) if embeddings else nothing,
            quality=np.array([_or_nan(row.quality) for row in rows], dtype=np.float32),
            percentile=np.array([_or_nan(row.percentile) for row in rows], dtype=np.float32),
            reasons=np.array([SEPARATOR.join(row.reasons) for row in rows], dtype=str),
        )


def settings_text(scorer: Scorer) -> str:
    """Everything that faces depend on besides the images, as JSON; what computes changes nothing worth a new run."""
    settings = {name: value for name, value in scorer.settings().items() if name != "provider"}
    return json.dumps(settings, sort_keys=True)


def crop_name(sha256: str, number: int) -> str:
    """The name of the file of a face's crop."""
    return f"{sha256}-{number}.jpg"


def _identify(source: Source, index: int, unchanged: dict[tuple[str, int, int], str]) -> Photo:
    """A photo with the SHA-256 of its image, which is read unless its file is unchanged."""
    path, (size, mtime) = storable(source.location(index)), _file_state(source.file_of(index))
    if size >= 0 and (sha256 := unchanged.get((path, size, mtime))):
        return Photo(path, sha256, size, mtime)
    try:
        data = source.read(index)
    except DataError as error:
        return Photo(path, "", size, mtime, storable(str(error)))
    return Photo(path, hashlib.sha256(data).hexdigest(), size, mtime)


def _load(source: Source, index: int, sha256: str) -> NDArray[np.uint8]:
    where, data = source.location(index), source.read(index)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ImageError(f"{where}: the file changed while it was read; run the command again")
    return decode(data, where=where)


def _file_state(file: Path | None) -> tuple[int, int]:
    """Size and modification time; −1 without a file, or where the image's own error will tell."""
    try:
        status = os.stat(file) if file is not None else None
    except (OSError, ValueError):
        status = None
    return (-1, 0) if status is None else (status.st_size, status.st_mtime_ns)


def _states(table: FoundFaces) -> Iterator[tuple[tuple[str, int, int], str]]:
    columns = (table.path, table.size, table.mtime, table.image)
    for path, size, mtime, image in zip(*(column.tolist() for column in columns), strict=True):
        if image >= 0:
            yield (path, size, mtime), str(table.sha256[image])


def _numbers(values: Sequence[Sequence[float] | None], count: int) -> NDArray[np.float32]:
    filled: list[Any] = [[np.nan] * count if value is None else value for value in values]
    return np.array(filled, dtype=np.float32).reshape(len(values), count)


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
