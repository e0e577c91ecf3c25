"""Model outputs to rows: the scores of each face, and whether it is accepted."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from facerts.embedding import Embedder, FaceOutputs, OnnxModel
from facerts.errors import Error, ModelError
from facerts.onnx.contract import Calibration
from facerts.scoring.face import Face
from facerts.scoring.prepare import PreparedImage
from facerts.scoring.reasons import BELOW_THRESHOLD, NO_FACE, NOT_A_FACE, in_order, model_reasons
from facerts.scoring.row import Row

VERDICTS = "poor", "usable", "good"
NON_FACE = "not a face"


@dataclass(frozen=True)
class RowBuilder:
    """Builds rows from the outputs of a model.

    Attributes:
        min_quality: accept faces with at least this quality, and nothing that is not a face; -inf accepts everything,
            None makes no decision.
        calibration: the calibration of the model, for percentiles; None leaves them out.
        cutoffs: qualities from which faces are usable, and good; None for no verdict.
    """

    model: Embedder | OnnxModel
    min_quality: float | None = None
    calibration: Calibration | None = None
    cutoffs: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.min_quality is not None and math.isnan(self.min_quality):
            raise Error("the minimum quality is not a number; give one, or -inf for none")

    def rows(self, image: PreparedImage, outputs: FaceOutputs | None, start: int = 0) -> list[Face]:
        """The rows of an image, one per face, of outputs from ``start`` on; or one with the reason for none."""
        if outputs is None or not image.crops:
            return [Face(self._without_face(image))]
        return [
            Face(
                self._row(image, at - start, outputs, at),
                crop,
                outputs.embedding[at] if outputs.embedding.shape[1] else None,
                _to_float(outputs.norm, at),
                image.found,
            )
            for at, crop in enumerate(image.crops, start)
        ]

    def decided(self, face: Face) -> Face:
        """A face that is accepted, or not, by this threshold in place of another."""
        row = face.row
        if row.face is None:
            return face
        own = tuple(reason for reason in row.reasons if reason != BELOW_THRESHOLD)
        accepted, reasons = self.decide(row.quality, own)
        return replace(face, row=replace(row, accepted=accepted, reasons=reasons))

    def decide(self, quality: float | None, reasons: tuple[str, ...]) -> tuple[bool | None, tuple[str, ...]]:
        """Whether a face is accepted, and its reasons with the one why not."""
        if self.min_quality is None:
            return None, reasons
        if quality is None:
            raise ModelError(f"{self.model.name} has no quality, so faces cannot be accepted by quality")
        below = quality < self.min_quality
        accepted = not below and (NOT_A_FACE not in reasons or self.min_quality == -math.inf)
        return accepted, reasons + (BELOW_THRESHOLD,) * below

    def _without_face(self, image: PreparedImage) -> Row:
        if image.error is not None:
            return Row(image.path, error=image.error, model_sha256=self.model.sha256)
        return Row(
            image.path,
            accepted=None if self.min_quality is None else False,
            reasons=(NO_FACE,),
            smaller_faces=image.smaller,
            model_sha256=self.model.sha256,
        )

    def _row(self, image: PreparedImage, face: int, outputs: FaceOutputs, at: int) -> Row:
        detection, quality = image.detections[face], _to_float(outputs.quality, at)
        reasons = in_order(model_reasons(outputs, at) + image.reasons[face])
        accepted, reasons = self.decide(quality, reasons)
        known = self.calibration
        percentile = None if known is None or quality is None else known.percentile(quality)
        verdict = None
        if quality is not None and self.cutoffs is not None:
            verdict = NON_FACE if NOT_A_FACE in reasons else VERDICTS[bisect_right(self.cutoffs, quality)]
        return Row(
            image.path,
            face=face,
            box=None if detection is None else detection.box.round(2).tolist(),
            points=None if detection is None else detection.points.reshape(-1).round(2).tolist(),
            rotation=None if detection is None else detection.rotation,
            det_score=None if detection is None else round(detection.score, 4),
            pose=None if detection is None else [round(angle, 1) for angle in detection.pose],
            percentile=percentile,
            quality=quality,
            uncertainty=_to_float(outputs.uncertainty, at),
            accepted=accepted,
            verdict=verdict,
            reasons=reasons,
            smaller_faces=image.smaller,
            model_sha256=self.model.sha256,
        )


def _to_float(values: NDArray[np.float32] | None, at: int) -> float | None:
    """The shortest decimal of the float32 value; plain conversion adds digits that mean nothing."""
    return None if values is None else float(str(values[at]))
