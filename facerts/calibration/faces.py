"""All faces of a source with their numbers, read as scoring reads them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source, Subset
from facerts.embedding import Embedder, FaceOutputs, OnnxEmbedder
from facerts.embedding.aligned import AlignedPhotos, alignment_notes
from facerts.embedding.embed import embed_crops
from facerts.errors import DataError, ModelError
from facerts.io.progress import track
from facerts.scoring.pipeline import score_images
from facerts.scoring.prepare import Picture
from facerts.scoring.row_builder import RowBuilder

# Lengths that differ from 1 by no more are rounding.
UNIT_TOLERANCE = 1e-2


@dataclass(frozen=True)
class Faces:
    """The pictures of a source that gave a face.

    Attributes:
        source: of them alone.
        rows: ``(F,) int64`` which pictures of the whole source they are.
        quality: ``(F,) float64`` as rows have it; None where the model gives none.
        embedding: ``(F, d) float32`` of unit length; None where it was not asked for.
        left_out: why other pictures could not be read, one sentence each.
        notes: what else is to be said of the pictures.
    """

    source: Source
    rows: NDArray[np.int64]
    quality: NDArray[np.float64] | None
    embedding: NDArray[np.float32] | None
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


class _WithMirror:
    """A model whose embeddings are those of the crop and of its mirror added."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.method, self.sha256 = embedder.name, embedder.method, embedder.sha256
        self._embedder = embedder

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        return embed_crops(self._embedder, crops, flip=True)


def read_faces(embedder: OnnxEmbedder, source: Source, *, embed: bool, flip: bool = False) -> Faces:
    """Score every picture of a source of crops, one face each.

    Pictures that cannot be read, and photos without a face, are left out.

    Args:
        embedder: the model.
        source: of crops, or of ``AlignedPhotos``.
        embed: keep the embeddings.
        flip: add each crop's mirror to its embedding.

    Raises:
        DataError: no picture gives a face.
        ModelError: the model gives a number that is not finite, or an embedding without a direction.
    """
    pictures = (Picture(source.location(row), partial(source.crop, row)) for row in range(len(source)))
    shown = track(pictures, f"scoring {source.name}", total=len(source), unit="pictures")
    model = _WithMirror(embedder) if flip and embed else embedder
    quality: dict[int, float | None] = {}
    vectors: dict[int, NDArray[np.float32] | None] = {}
    left_out = []
    for row, (scored,) in enumerate(score_images(RowBuilder(model), shown, batch_size=embedder.batch_size)):
        if scored.row.error is not None:
            left_out.append(scored.row.error)
            continue
        quality[row] = scored.row.quality
        vectors[row] = scored.embedding if embed else None
    faceless = dict.fromkeys(source.without_face()) if isinstance(source, AlignedPhotos) else {}
    rows = [row for row in quality if row not in faceless]
    if not rows:
        raise DataError(f"{source.name}: no face in {len(source)} pictures; {' '.join(left_out[:1])}")
    if faceless:
        first = source.key(next(iter(faceless)))
        notes = [f"No face was found in {len(faceless)} photos, the first is {first}; they are left out."]
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
        wrong = np.flatnonzero(~np.isfinite(faces.quality))
        if len(wrong):
            where = faces.source.location(int(wrong[0]))
            raise ModelError(f"{where}: the quality that {model} gives it is not a finite number")
    if faces.embedding is not None:
        length = np.linalg.norm(faces.embedding, axis=1)
        wrong = np.flatnonzero(~(np.abs(length - 1) < UNIT_TOLERANCE))
        if len(wrong):
            where = faces.source.location(int(wrong[0]))
            raise ModelError(
                f"{where}: its embedding by {model} has length {length[wrong[0]]:g}, not 1, so it cannot be matched"
            )
