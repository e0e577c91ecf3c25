"""A face that was found and scored, with everything that is known of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.errors import ImageError
from facerts.scoring.reasons import BELOW_THRESHOLD, in_words
from facerts.scoring.row import Row
from facerts.scoring.row_builder import RowBuilder, ScoredFace


@dataclass(frozen=True, eq=False)
class Face:
    """One face of an image; what the model or the detector does not give is None.

    Attributes:
        path: the image's path; "image 0", "image 1", … for images without one.
        number: of the face in its image, largest first.
        box: ``(4,) float64``, left, top, right and bottom in pixels; None for an aligned crop, as are ``points`` and
            ``det_score``.
        points: ``(5, 2) float64``, x and y of the eyes, the nose and the corners of the mouth, in pixels.
        det_score: the detector's, 0 to 1.
        crop: ``(112, 112, 3) uint8`` RGB, aligned.
        embedding: ``(d,) float32`` of unit length.
        norm: length of the embedding before normalization.
        percentile: the quality as the percentage, 0 to 100, of the faces used for calibration that scored lower.
        quality: higher is better.
        uncertainty: as the model's method defines it.
        accepted: whether the quality reaches the threshold and the face is one; None without a threshold.
        reasons: what makes the face poor, most important first, see ``facerts.scoring.Row``.
        model_sha256: SHA-256 of the model's file; another model's embeddings cannot be compared with this one.
    """

    path: str
    number: int
    box: NDArray[np.float64] | None
    points: NDArray[np.float64] | None
    det_score: float | None
    crop: NDArray[np.uint8]
    embedding: NDArray[np.float32]
    norm: float | None
    percentile: float | None
    quality: float | None
    uncertainty: float | None
    accepted: bool | None
    reasons: tuple[str, ...]
    model_sha256: str

    def __repr__(self) -> str:
        percentile = "" if self.percentile is None else f", percentile {int(self.percentile)}"
        poor = f", {in_words(self.reasons)}" if self.reasons else ""
        return f"<Face {self.number} of {self.path}{percentile}{poor}>"


def face_of(scored: ScoredFace) -> Face | None:
    """The face of a scored image; None if the image has none.

    Raises:
        ImageError: the image could not be read.
    """
    row = scored.row
    if row.error is not None:
        raise ImageError(row.error)
    if row.face is None or scored.crop is None or scored.embedding is None:
        return None
    return Face(
        row.path,
        row.face,
        None if row.box is None else np.array(row.box),
        None if row.points is None else np.array(row.points).reshape(-1, 2),
        row.det_score,
        scored.crop,
        scored.embedding,
        scored.norm,
        row.percentile,
        row.quality,
        row.uncertainty,
        row.accepted,
        row.reasons,
        row.model_sha256,
    )


def scored_face(face: Face, row_builder: RowBuilder) -> ScoredFace:
    """A face as the scored face that it was, accepted or not by another threshold."""
    accepted, reasons = row_builder.decide(
        face.quality, tuple(reason for reason in face.reasons if reason != BELOW_THRESHOLD)
    )
    row = Row(
        face.path,
        face=face.number,
        percentile=face.percentile,
        quality=face.quality,
        accepted=accepted,
        reasons=reasons,
        model_sha256=face.model_sha256,
    )
    return ScoredFace(row, face.crop, face.embedding, face.norm, found=1)
