"""Photos to a table of faces, in blocks that survive an interruption, without looking at any image twice.

A photo whose file has the size and the modification time of the last run is unchanged and is not even read. Any other
is read, and found again by the SHA-256 of its bytes wherever it is now; only images that are new are scored. Images
that could not be decoded are tried again in each run, as what was missing may be there now.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.errors import DataError, ImageError
from facerts.galleries.enrollments import SEPARATOR
from facerts.images import decode, encode_jpeg
from facerts.io.files import atomic_write, sync_names
from facerts.io.job import Job, file_state
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
        scored: number of images that were scored now.
        damaged: problems of blocks of an interrupted run, whose images were scored again.
    """

    found: FoundFaces
    scored: int
    damaged: tuple[str, ...] = ()


class FindJob(Job):
    """Finds the faces of photos.

    Args:
        scorer: the model, and the detector for photos.
        folder: where finished blocks are kept until the run has ended; the caller has locked it.
        crops: where each face is kept as a small image, see ``crop_name``.
    """

    def __init__(self, scorer: Scorer, folder: Path, crops: Path) -> None:
        super().__init__(folder, json.loads(settings_text(scorer)), ".npz")
        self.scorer = scorer
        self.crops = crops
        self._tables = [self._table([], [])]
        self._photos: list[Photo] = []
        self._faces: list[list[Face]] = []
        self._scored = 0

    def run(self, source: Source, earlier: FoundFaces | None, advance: Callable[[int], None] | None = None) -> Scan:
        """Find the faces of all photos, given the last run's table; ``advance`` gets the numbers of photos done."""
        if earlier is not None and earlier.settings == settings_text(self.scorer):
            self._tables.append(earlier)
        damaged = self.begin(resume=True, anew=True)
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
        done = [photo._replace(error=errors[photo.sha256]) if photo.sha256 in errors else photo for photo in done]
        return Scan(assemble(done, self._tables), self._scored, tuple(damaged))

    def _check(self) -> None:
        self._tables += [table for _, table in self.intact(lambda number: read_found_faces(self.part(number)))]

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
        write_found_faces(self.part(max(self.finished(), default=0) + 1), table)
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
            quality=np.array([row.quality for row in rows], dtype=np.float32),
            percentile=np.array([row.percentile for row in rows], dtype=np.float32),
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
    # Without a file, or where the image's own error will tell, the size is −1.
    path, (size, mtime) = storable(source.location(index)), file_state(source.file_of(index)) or (-1, 0)
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


def _states(table: FoundFaces) -> Iterator[tuple[tuple[str, int, int], str]]:
    columns = (table.path, table.size, table.mtime, table.image)
    for path, size, mtime, image in zip(*(column.tolist() for column in columns), strict=True):
        if image >= 0:
            yield (path, size, mtime), str(table.sha256[image])


def _numbers(values: Sequence[Sequence[float] | None], count: int) -> NDArray[np.float32]:
    filled: list[Any] = [[np.nan] * count if value is None else value for value in values]
    return np.array(filled, dtype=np.float32).reshape(len(values), count)
