"""The outcome of a search for one face."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.scoring.row_builder import ScoredFace


class Decision(str, Enum):
    """What a search says of a face."""

    MATCH = "match"
    UNKNOWN = "unknown"
    TOO_POOR = "too poor to say"
    NO_FACE = "no face"
    ERROR = "error"


@dataclass(frozen=True)
class Match:
    """The people in a gallery who are most like a face.

    Attributes:
        face: number of the face in the image, largest first; None without one.
        person: the most similar person, also where the decision is "unknown"; None for a poor face or none.
        threshold: minimum cosine similarity of a match at the requested rate.
        candidates: the k most similar people with their cosines, best first.
        reasons: what makes the face poor, see ``facerts.scoring.Row``.
    """

    path: str
    face: int | None
    decision: Decision
    person: str | None = None
    cosine: float | None = None
    threshold: float | None = None
    percentile: float | None = None
    quality: float | None = None
    candidates: tuple[tuple[str, float], ...] = ()
    reasons: tuple[str, ...] = ()
    error: str | None = None


# The k most similar people to each of some probes ``(n, d)``, with their cosines, best first.
Nearest = Callable[[NDArray[np.float32]], Sequence[Sequence[tuple[str, float]]]]


def match_faces(faces: Sequence[ScoredFace], size: int, threshold: float, nearest: Nearest) -> list[Match]:
    """The outcome of a search for each face.

    Args:
        faces: scored by the model of the gallery; those that were rejected are too poor.
        size: numbers of the gallery's embeddings.
        threshold: minimum cosine similarity of a match.
        nearest: finds the people who are most like the others.
    """
    usable = [face for face in faces if face.embedding is not None and not face.row.rejected]
    candidates: Sequence[Sequence[tuple[str, float]]] = []
    if usable:
        probes = np.array([face.embedding for face in usable], dtype=np.float32)
        if probes.shape[1] != size:
            raise DataError(
                f"the gallery's embeddings have {size} numbers, and those of its model have {probes.shape[1]}; build "
                "it again"
            )
        candidates = nearest(probes)
    best = iter(candidates)
    return [
        _match(face, tuple(next(best)), threshold)
        if face.embedding is not None and not face.row.rejected
        else _no_match(face)
        for face in faces
    ]


def _match(face: ScoredFace, candidates: tuple[tuple[str, float], ...], threshold: float) -> Match:
    person, cosine = candidates[0]
    decision = Decision.MATCH if cosine >= threshold else Decision.UNKNOWN
    found = _without_person(face, decision)
    return replace(found, person=person, cosine=cosine, threshold=threshold, candidates=candidates)


def _no_match(face: ScoredFace) -> Match:
    if face.embedding is not None:
        return _without_person(face, Decision.TOO_POOR)
    return _without_person(face, Decision.NO_FACE if face.row.error is None else Decision.ERROR)


def _without_person(face: ScoredFace, decision: Decision) -> Match:
    row = face.row
    return Match(
        row.path,
        row.face,
        decision,
        percentile=row.percentile,
        quality=row.quality,
        reasons=row.reasons,
        error=row.error,
    )
