"""A face that was found in an image, with everything that is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from facerts.errors import Error, ModelError
from facerts.scoring.reasons import in_words
from facerts.scoring.row import Row

if TYPE_CHECKING:
    from facerts.scoring.parts import Recognizer

_COLUMNS = frozenset(field.name for field in fields(Row))


class Pose(NamedTuple):
    """Rotation of a head in degrees, see ``facerts.detection.detector``."""

    yaw: float
    pitch: float
    roll: float


@dataclass(frozen=True, eq=False, repr=False)
class Face:
    """One face of an image, or an image without a face.

    Every column of its row is an attribute, too: ``path`` ("image 0", "image 1", … for images without one),
    ``quality``, ``percentile``, ``accepted``, ``verdict``, ``reasons``, ``det_score``, ``uncertainty``.

    Attributes:
        row: what is written of it.
        crop: ``(112, 112, 3) uint8`` RGB, aligned; None without a face.
        vector: ``(d,) float32`` of unit length; None if it was not computed, see ``embedding``.
        norm: length of the embedding before normalization; None if it is not known.
        found: number of faces in the image, those that were not scored included.
        recognizer: computes the embedding when it is first read; None if nobody can.
    """

    row: Row
    crop: NDArray[np.uint8] | None = None
    vector: NDArray[np.float32] | None = None
    norm: float | None = None
    found: int = 0
    recognizer: Recognizer | None = None

    def __getattr__(self, name: str) -> Any:
        if name in _COLUMNS:
            return getattr(self.row, name)
        raise AttributeError(f"a Face has no {name!r}")

    def __repr__(self) -> str:
        row = self.row
        if row.face is None:
            return f"<no face in {row.path}: {row.error or in_words(row.reasons)}>"
        percentile = "" if row.percentile is None else f", percentile {int(row.percentile)}"
        poor = f", {in_words(row.reasons, pose=row.pose)}" if row.reasons else ""
        return f"<Face {row.face} of {row.path}{percentile}{poor}>"

    @property
    def index(self) -> int | None:
        """Number of the face in its image, largest first."""
        return self.row.face

    @property
    def box(self) -> NDArray[np.float64] | None:
        """``(4,)`` left, top, right and bottom in pixels; None for an aligned crop."""
        return None if self.row.box is None else np.array(self.row.box)

    @property
    def points(self) -> NDArray[np.float64] | None:
        """``(5, 2)`` x and y of the eyes, the nose and the corners of the mouth, in pixels; None for a crop."""
        return None if self.row.points is None else np.array(self.row.points).reshape(-1, 2)

    @property
    def pose(self) -> Pose | None:
        """Rotation of the head; None for an aligned crop."""
        return None if self.row.pose is None else Pose(*self.row.pose)

    @property
    def model_sha256(self) -> str:
        """SHA-256 of the recognizer's file; embeddings of different recognizers cannot be compared."""
        return self.row.model_sha256 if self.recognizer is None else self.recognizer.sha256

    @property
    def embedding(self) -> NDArray[np.float32]:
        """``(d,) float32`` of unit length."""
        if self.vector is None:
            (face,) = embedded([self])
            object.__setattr__(self, "vector", face.vector)
        assert self.vector is not None
        return self.vector

    def similarity(self, other: Face) -> float:
        """Cosine similarity of two faces, -1 to 1."""
        if not isinstance(other, Face):
            raise Error(f"give a face, as Scorer.faces returns them, not a {type(other).__name__}")
        if self.model_sha256 != other.model_sha256:
            raise ModelError(
                f"{self!r} and {other!r} are of different recognizers, so they cannot be compared; take one scorer"
            )
        return cosine(self.embedding, other.embedding)


def cosine(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """The cosine of two vectors of unit length, which rounding must not carry beyond 1."""
    return float(np.clip(first.astype(np.float64) @ second.astype(np.float64), -1, 1))


def embedded(faces: Sequence[Face]) -> list[Face]:
    """Faces with their embeddings; those that were not computed are one batch of each recognizer."""
    missing = [at for at, face in enumerate(faces) if face.vector is None and face.crop is not None]
    known = list(faces)
    while missing:
        recognizer = known[missing[0]].recognizer
        if recognizer is None:
            raise ModelError(
                f"{known[missing[0]]!r} has no embedding, and there is no recognizer (recognizer=NAME) to compute it"
            )
        now = [at for at in missing if known[at].recognizer is recognizer]
        crops = [crop for at in now if (crop := known[at].crop) is not None]
        for at, vector in zip(now, recognizer(np.stack(crops)), strict=True):
            row = replace(known[at].row, model_sha256=recognizer.sha256)
            known[at] = replace(known[at], row=row, vector=vector)
        missing = [at for at in missing if known[at].vector is None]
    return known
