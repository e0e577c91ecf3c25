"""Embeddings of a whole data set on the disk, so that memory holds as much of them as is looked at."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.curation.staging import new_places
from facerts.datasets import Source
from facerts.datasets.read_ahead import read_ahead
from facerts.detection.base import Detector
from facerts.embedding import OnnxEmbedder
from facerts.embedding.aligned import AlignedPhotos
from facerts.embedding.cache import embedder_key
from facerts.embedding.embed import embed_source
from facerts.embedding.search import Backend
from facerts.errors import DataError, Error
from facerts.images import CROP_SIZE
from facerts.io.files import atomic_write
from facerts.io.json_file import read_json
from facerts.io.progress import progress_bar

Floats = NDArray[np.float32]

# Batches that are embedded between two writes.
BATCHES = 16
EMBEDDING, QUALITY, FACTS = "embedding.npy", "quality.npy", "facts.json"


@dataclass(frozen=True)
class Embedded:
    """A source's embeddings, a row for each picture.

    Attributes:
        embedding: ``(N, d)`` of unit length, mapped from the disk; rows of unreadable pictures mean nothing.
        quality: ``(N,)`` higher is better, mapped from the disk; None where the model gives none.
        unreadable: why pictures have no embedding, by their numbers.
    """

    embedding: Floats
    quality: Floats | None
    unreadable: dict[int, str]

    @property
    def readable(self) -> NDArray[np.bool_]:
        """``(N,)`` which rows mean something."""
        mask = np.ones(len(self.embedding), dtype=bool)
        mask[list(self.unreadable)] = False
        return mask


@dataclass(frozen=True)
class Embedding:
    """How pictures are embedded and searched.

    Attributes:
        embedder: the model.
        flip: add each crop's mirror to its embedding.
        cache: a folder to keep embeddings in for later commands; None keeps them while they are needed.
        search: NumPy or FAISS; both are exact.
    """

    embedder: OnnxEmbedder
    flip: bool = False
    cache: Path | None = None
    search: Backend = "numpy"

    def of(self, source: Source, scratch: Path, align: Detector | None = None) -> Embedded:
        """Embed a source, or take its embeddings from the cache.

        Args:
            source: of aligned pictures, or of photos.
            scratch: a folder for what is not cached.
            align: finds the faces of photos; None where pictures are aligned crops.

        Raises:
            DataError: no picture can be read, or the cache is broken.
            ModelError: the model gives a number that is not finite.
        """
        crops = source if align is None else AlignedPhotos(source, align)
        if self.cache is None:
            place = Path(mkdtemp(dir=scratch)) / "embeddings"
            _embed(self.embedder, crops, place, flip=self.flip)
            return _load(place, len(source))
        key = embedder_key(self.embedder, flip=self.flip, align=align and align.identity)
        key = f"{key} {pictures_sha256(source)}"
        place = self.cache / hashlib.sha256(key.encode()).hexdigest()[:20]
        if not place.exists():
            with new_places([place]) as places:
                _embed(self.embedder, crops, places.of(place), flip=self.flip)
        return _load(place, len(source))

    def told(self) -> dict[str, Any]:
        """What a report says of it."""
        model = {"name": self.embedder.name, "sha256": self.embedder.sha256, "method": self.embedder.method}
        return {"model": model, "flip": self.flip, "search": self.search}


def pictures_sha256(source: Source) -> str:
    """SHA-256 over the names and bytes of all pictures, in order; one that cannot be had counts as its error."""

    def load(index: int) -> bytes:
        try:
            data = source.read(index)
        except Error as error:
            data = str(error).encode()
        return f"{source.key(index)}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data

    digest = hashlib.sha256()
    for data in read_ahead(range(len(source)), load, f"hashing {source.name}"):
        digest.update(data)
    return digest.hexdigest()


class _Readable(Source):
    """A source whose unreadable pictures are black, with the reasons noted."""

    def __init__(self, source: Source) -> None:
        self.name, self.labels, self.identities = source.name, source.labels, source.identities
        self.problems: dict[int, str] = {}
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def key(self, index: int) -> str:
        return self._source.key(index)

    def read(self, index: int) -> bytes:
        return self._source.read(index)

    def crop(self, index: int) -> NDArray[np.uint8]:
        try:
            return self._source.crop(index)
        except Error as error:
            self.problems[index] = str(error)
            return np.zeros((CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)


def _embed(embedder: OnnxEmbedder, source: Source, folder: Path, *, flip: bool) -> None:
    """Write the embeddings of all pictures into a new folder, chunk by chunk."""
    folder.mkdir()
    readable = _Readable(source)
    count, size = len(source), BATCHES * embedder.batch_size
    nothing = embedder(np.empty((0, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8))
    shape = (count, nothing.embedding.shape[1])
    vectors = np.lib.format.open_memmap(folder / EMBEDDING, "w+", np.float32, shape)
    quality = None
    if nothing.quality is not None:
        quality = np.lib.format.open_memmap(folder / QUALITY, "w+", np.float32, (count,))
    with progress_bar() as bar:
        task = bar.add_task(f"embedding {source.name}", total=count, unit="images")
        for start in range(0, count, size):
            rows = np.arange(start, min(start + size, count))
            outputs = embed_source(
                embedder, readable, flip=flip, indices=rows, batch_size=embedder.batch_size, progress=False
            )
            vectors[rows] = outputs.embedding
            if quality is not None:
                assert outputs.quality is not None
                quality[rows] = outputs.quality
            bar.advance(task, len(rows))
    problems = dict(readable.problems)
    if isinstance(source, AlignedPhotos):
        missing = {index: f"{source.location(index)}: no face was found" for index in source.without_face()}
        problems = missing | problems
    if len(problems) == count:
        raise DataError(f"{source.name}: none of its {count} pictures can be embedded; {problems[0]}")
    for array in (vectors, quality):
        if array is not None:
            array.flush()
    with atomic_write(folder / FACTS, "w") as file:
        json.dump({"unreadable": {str(row): problems[row] for row in sorted(problems)}}, file)


def _load(place: Path, count: int) -> Embedded:
    """The embeddings of so many pictures, as ``_embed`` has written them."""
    try:
        facts = read_json(place / FACTS)
        vectors: Floats = np.lib.format.open_memmap(place / EMBEDDING, "r")
        path = place / QUALITY
        quality: Floats | None = np.lib.format.open_memmap(path, "r") if os.path.exists(path) else None
        unreadable = {int(row): str(problem) for row, problem in facts["unreadable"].items()}
        fits = vectors.ndim == 2 and all(0 <= row < count for row in unreadable)
        for array in (vectors, quality):
            fits &= array is None or (len(array) == count and array.dtype == np.float32)
        if not fits or (quality is not None and quality.ndim != 1):
            raise ValueError(f"not those of its {count} pictures")
    except (DataError, OSError, ValueError, EOFError, TypeError, LookupError, AttributeError) as error:
        raise DataError(f"{place}: no embeddings of a data set ({error}); remove this folder") from error
    return Embedded(vectors, quality, unreadable)
