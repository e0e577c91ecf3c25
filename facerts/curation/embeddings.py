"""Embeddings of a whole data set, memory-mapped from disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.fingerprint import hash_images
from facerts.datasets.source import WrappedSource
from facerts.detection.detector import FaceFinder
from facerts.embedding import OnnxEmbedder
from facerts.embedding.aligned import AlignedPhotos
from facerts.embedding.embed import embed_source
from facerts.embedding.output_cache import OutputCache
from facerts.errors import DataError, Error, WriteError
from facerts.images import CROP_SIZE
from facerts.io.console import warn
from facerts.io.files import atomic_write
from facerts.io.job import staged
from facerts.io.json_file import read_json
from facerts.io.progress import progress_bar

Floats = NDArray[np.float32]

# Batches embedded between two writes.
BATCHES_PER_WRITE = 16
EMBEDDING, QUALITY, FACTS = "embedding.npy", "quality.npy", "facts.json"


@dataclass(frozen=True)
class SourceEmbeddings:
    """The embeddings of a source, a row per image.

    Attributes:
        embedding: ``(N, d)`` of unit length, memory-mapped; the rows of unreadable images are meaningless.
        quality: ``(N,)``, higher is better, memory-mapped; None if the model has no quality.
    """

    embedding: Floats
    quality: Floats | None
    unreadable: dict[int, str]

    @property
    def readable(self) -> NDArray[np.bool_]:
        """``(N,)`` mask of the rows with an embedding."""
        mask = np.ones(len(self.embedding), dtype=bool)
        mask[list(self.unreadable)] = False
        return mask


@dataclass(frozen=True)
class SourceEmbedder:
    """Embeds the images of a source; without a ``cache`` folder, files are temporary."""

    embedder: OnnxEmbedder
    cache: Path | None = None

    def embed(self, source: Source, scratch: Path, detector: FaceFinder | None = None) -> SourceEmbeddings:
        """Embed a source, or take its embeddings from the cache; ``detector`` finds faces in photos, None for crops."""
        crops = source if detector is None else AlignedPhotos(source, detector)
        if self.cache is None:
            return self._embed_once(crops, scratch)
        key = {
            "model": self.embedder.identity,
            "detector": detector and detector.identity,
            "images": hash_images(source, f"hashing {source.name}").sha256,
        }
        folder = OutputCache(self.cache).path_of(key, "")
        if not folder.exists():
            try:
                with staged([folder]) as temporary:
                    _embed(self.embedder, crops, temporary[folder])
            except WriteError as error:
                warn(f"{error}; the embeddings are not kept for the next command")
                return self._embed_once(crops, scratch)
        return _load(folder, len(source))

    def _embed_once(self, crops: Source, scratch: Path) -> SourceEmbeddings:
        folder = Path(mkdtemp(dir=scratch)) / "embeddings"
        _embed(self.embedder, crops, folder)
        return _load(folder, len(crops))

    def settings(self, detector: FaceFinder | None) -> dict[str, object]:
        """The settings, for a report."""
        model = {"name": self.embedder.name, "sha256": self.embedder.sha256, "method": self.embedder.method}
        identity = detector and detector.identity
        return {"model": model, "detector": identity}


class _BlackIfUnreadable(WrappedSource):
    """A source whose unreadable images are black; ``problems`` has the reasons."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.problems: dict[int, str] = {}

    def crop(self, index: int) -> NDArray[np.uint8]:
        try:
            return self._source.crop(index)
        except Error as error:
            self.problems[index] = str(error)
            return np.zeros((CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)


def _embed(embedder: OnnxEmbedder, source: Source, folder: Path) -> None:
    """Write the embeddings of all images to a new folder, chunk by chunk."""
    folder.mkdir()
    readable = _BlackIfUnreadable(source)
    count, size = len(source), BATCHES_PER_WRITE * embedder.batch_size
    empty = embedder(np.empty((0, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8))
    with ExitStack() as files, progress_bar() as bar:
        vectors = files.enter_context(_write_rows(folder / EMBEDDING, (count, empty.embedding.shape[1])))
        quality = None
        if empty.quality is not None:
            quality = files.enter_context(_write_rows(folder / QUALITY, (count,)))
        task = bar.add_task(f"embedding {source.name}", total=count, unit="images")
        for start in range(0, count, size):
            rows = np.arange(start, min(start + size, count))
            outputs = embed_source(
                embedder, readable, flip=False, indices=rows, batch_size=embedder.batch_size, progress=False
            )
            vectors(outputs.embedding)
            if quality is not None:
                assert outputs.quality is not None
                quality(outputs.quality)
            bar.advance(task, len(rows))
    problems = dict(readable.problems)
    if isinstance(source, AlignedPhotos):
        missing = {index: f"{source.location(index)}: no face was found" for index in source.without_face()}
        problems = missing | problems
    if len(problems) == count:
        raise DataError(f"{source.name}: none of its {count} images can be embedded; {problems[0]}")
    with atomic_write(folder / FACTS, "w") as file:
        json.dump({"unreadable": {str(row): problems[row] for row in sorted(problems)}}, file)


@contextmanager
def _write_rows(path: Path, shape: tuple[int, ...]) -> Iterator[Callable[[Floats], object]]:
    """A function that appends rows to a .npy file. In a mapped file, a full disk would kill the process."""
    with atomic_write(path) as file:
        header = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        yield lambda rows: file.write(rows.astype(np.float32).tobytes())


def _load(folder: Path, count: int) -> SourceEmbeddings:
    """The embeddings of ``count`` images, as written by ``_embed``."""
    try:
        facts = read_json(folder / FACTS)
        vectors: Floats = np.lib.format.open_memmap(folder / EMBEDDING, "r")
        path = folder / QUALITY
        quality: Floats | None = np.lib.format.open_memmap(path, "r") if os.path.exists(path) else None
        unreadable = {int(row): str(problem) for row, problem in facts["unreadable"].items()}
        fits = vectors.ndim == 2 and all(0 <= row < count for row in unreadable)
        for array in (vectors, quality):
            fits &= array is None or (len(array) == count and array.dtype == np.float32)
        if not fits or (quality is not None and quality.ndim != 1):
            raise ValueError(f"not for {count} images")
    except (DataError, OSError, ValueError, EOFError, TypeError, LookupError, AttributeError) as error:
        raise DataError(f"{folder}: no embeddings of a data set ({error}); remove this folder") from error
    return SourceEmbeddings(vectors, quality, unreadable)
