"""The faces of a source with their quality and embeddings, read the same way as for scoring."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source, Subset
from facerts.embedding import Embedder, FaceOutputs, OnnxEmbedder
from facerts.embedding.aligned import AlignedPhotos, alignment_notes
from facerts.embedding.embed import embed_crops
from facerts.embedding.onnx_embedder import OnnxQuality
from facerts.errors import DataError, ModelError
from facerts.io.progress import track
from facerts.scoring.pipeline import score_images
from facerts.scoring.prepare import LazyImage
from facerts.scoring.row_builder import RowBuilder

# A larger deviation from length 1 is not rounding.
UNIT_TOLERANCE = 1e-2


@dataclass(frozen=True)
class Faces:
    """The images of a source that have a face.

    Attributes:
        rows: ``(F,) int64`` their indices in the whole source.
        quality: ``(F,) float64`` as in rows; None if the model has no quality.
        embedding: ``(F, d) float32`` of unit length; None if embeddings were not requested.
        left_out: why the other images could not be read, one sentence each.
    """

    source: Source
    rows: NDArray[np.int64]
    quality: NDArray[np.float64] | None
    embedding: NDArray[np.float32] | None
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


class _FlipEmbedder:
    """An embedder that adds the embedding of the mirror image of each crop."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.method, self.sha256 = embedder.name, embedder.method, embedder.sha256
        self._embedder = embedder

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        return embed_crops(self._embedder, crops, flip=True)


def read_faces(embedder: OnnxEmbedder | OnnxQuality, source: Source, *, embed: bool, flip: bool = False) -> Faces:
    """Score every image of a source of crops, one face each.

    Images that cannot be read, and photos without a face, are left out.
    """
    images = (LazyImage(source.location(row), partial(source.crop, row)) for row in range(len(source)))
    tracked = track(images, f"scoring {source.name}", total=len(source), unit="images")
    flipped = flip and embed
    model = _FlipEmbedder(embedder) if flipped and isinstance(embedder, OnnxEmbedder) else embedder
    quality: dict[int, float | None] = {}
    vectors: dict[int, NDArray[np.float32] | None] = {}
    left_out = []
    for row, (face,) in enumerate(score_images(RowBuilder(model), tracked, batch_size=embedder.batch_size)):
        if face.row.error is not None:
            left_out.append(face.row.error)
            continue
        quality[row] = face.row.quality
        vectors[row] = face.vector if embed else None
    faceless = dict.fromkeys(source.without_face()) if isinstance(source, AlignedPhotos) else {}
    rows = [row for row in quality if row not in faceless]
    if not rows:
        raise DataError(f"{source.name}: no face in {len(source)} images; {' '.join(left_out[:1])}")
    if faceless:
        first = source.key(next(iter(faceless)))
        notes = [f"No face was found in {len(faceless)} photos, first {first}; they are left out."]
    else:
        notes = alignment_notes(source)
    numbers = [number for row in rows if (number := quality[row]) is not None]
    embeddings = [vector for row in rows if (vector := vectors[row]) is not None]
    faces = Faces(
        Subset(source, rows),
        np.array(rows, dtype=np.int64),
        np.array(numbers, dtype=np.float64) if numbers else None,
        np.stack(embeddings) if embeddings else None,
        tuple(left_out),
        tuple(notes),
    )
    _check(faces, embedder.name)
    return faces


def _check(faces: Faces, model: str) -> None:
    if faces.quality is not None:
        invalid = np.flatnonzero(~np.isfinite(faces.quality))
        if len(invalid):
            where = faces.source.location(int(invalid[0]))
            raise ModelError(f"{where}: {model} returns a quality that is not a finite number")
    if faces.embedding is not None:
        length = np.linalg.norm(faces.embedding, axis=1)
        invalid = np.flatnonzero(~(np.abs(length - 1) < UNIT_TOLERANCE))
        if len(invalid):
            where = faces.source.location(int(invalid[0]))
            raise ModelError(
                f"{where}: {model} returns an embedding of length {length[invalid[0]]:g}, which must be 1 for matching"
            )
