"""The outcome of a search for one face."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from facerts.scoring.face import Face


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


def is_usable(face: Face) -> bool:
    """Whether a face can be searched for; those that were rejected are too poor."""
    return face.vector is not None and not face.row.rejected


def match_of(face: Face, candidates: Sequence[tuple[str, float]], threshold: float) -> Match:
    """The outcome for a face.

    Args:
        candidates: the people who are most like it, best first; none if it cannot be searched for.
        threshold: minimum cosine similarity of a match.
    """
    row = face.row
    person, cosine = candidates[0] if candidates else (None, None)
    if cosine is not None:
        decision = Decision.MATCH if cosine >= threshold else Decision.UNKNOWN
    elif face.vector is not None:
        decision = Decision.TOO_POOR
    else:
        decision = Decision.NO_FACE if row.error is None else Decision.ERROR
    return Match(
        row.path,
        row.face,
        decision,
        person,
        cosine,
        threshold if candidates else None,
        row.percentile,
        row.quality,
        tuple(candidates),
        row.reasons,
        row.error,
    )
