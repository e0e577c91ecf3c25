"""One face of one picture, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pydantic import ConfigDict

# Why a face is not accepted.
NO_FACE = "no face found"
LOW_QUALITY = "quality below the threshold"


@dataclass(frozen=True)
class Row:
    """What scoring says; None where there is nothing to say.

    Attributes:
        path: of the picture.
        face: number of the face in the picture, the largest first; None where the picture gave none.
        box: left, top, right, bottom in pixels, from the detector.
        points: five x, y pairs in one list, from the detector.
        det_score: of the detector.
        quality: higher is better.
        percentile: 0 to 100, the share of the faces that the model was calibrated on which scored lower; None where
            it was not calibrated.
        uncertainty: the method's own number.
        accepted: whether the quality reaches the threshold; None where no threshold was asked for.
        reason: why it was not accepted.
        error: why the picture could not be scored.
        model_sha256: of the model that scored it.
    """

    # For rows that are read again: no others than these.
    __pydantic_config__ = ConfigDict(extra="forbid")

    path: str
    face: int | None = None
    box: list[float] | None = None
    points: list[float] | None = None
    det_score: float | None = None
    quality: float | None = None
    percentile: float | None = None
    uncertainty: float | None = None
    accepted: bool | None = None
    reason: str | None = None
    error: str | None = None
    model_sha256: str = ""


COLUMNS = tuple(field.name for field in fields(Row))
