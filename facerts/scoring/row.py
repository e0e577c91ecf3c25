"""The row of one face of an image, or of an image without a face."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ConfigDict

from facerts.scoring.reasons import NOT_A_FACE


@dataclass(frozen=True)
class Row:
    """The scores of one face, or why an image has none; fields without a value are None.

    Attributes:
        face: the number of the face in the image, largest first; None if the image has no face or an error.
        box: left, top, right and bottom in pixels of the upright image; None for an aligned crop.
        points: x and y of the eyes, the nose and the corners of the mouth, from left to right in the upright
            face; None for an aligned crop.
        rotation: 0, 90, 180 or 270, the degrees by which the photo has to be turned clockwise for an upright face; None
            for an aligned crop.
        det_score: the detector's score, 0 to 1; None for an aligned crop.
        pose: yaw, pitch and roll of the head in degrees; None for an aligned crop.
        percentile: the quality as the percentage, 0 to 100, of the faces used for calibration that scored lower; None
            if the model is not calibrated.
        quality: higher is better; comparable only within one model.
        uncertainty: as the model's method defines it.
        accepted: whether the quality reaches the threshold and the face is one; None if there is no threshold.
        verdict: what the quality means: "good", "usable", "poor" or "not a face"; None if the model is not calibrated.
        smaller_faces: number of faces in the image without a row, as they are smaller than the minimum that was asked
            for; None without one.
        reasons: what makes the face poor, most important first, and why it was rejected: not_a_face or below_threshold.
        model_sha256: of the file of the recognizer; without one, of the quality.
    """

    # Rows read back from a file must not have other fields.
    __pydantic_config__ = ConfigDict(extra="forbid")

    path: str
    face: int | None = None
    box: list[float] | None = None
    points: list[float] | None = None
    rotation: int | None = None
    det_score: float | None = None
    pose: list[float] | None = None
    percentile: float | None = None
    quality: float | None = None
    uncertainty: float | None = None
    accepted: bool | None = None
    verdict: str | None = None
    reasons: tuple[str, ...] = ()
    smaller_faces: int | None = None
    error: str | None = None
    model_sha256: str = ""

    @property
    def rejected(self) -> bool:
        """Whether the face must not be used: not accepted, or, without a threshold, not a face."""
        return NOT_A_FACE in self.reasons if self.accepted is None else not self.accepted
