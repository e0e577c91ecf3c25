"""Model outputs to rows: the scores of each face, and whether it is accepted."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from facerts.detection import Detection
from facerts.detection.pose import head_pose
from facerts.embedding import Embedder, FaceOutputs, OnnxModel
from facerts.errors import ModelError
from facerts.onnx.contract import Calibration
from facerts.scoring.face import Face
from facerts.scoring.prepare import PreparedImage
from facerts.scoring.reasons import BELOW_THRESHOLD, NO_FACE, NOT_A_FACE, in_order, model_reasons
from facerts.scoring.row import Row

VERDICTS = "poor", "usable", "good"


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

    def rows(self, image: PreparedImage, outputs: FaceOutputs | None) -> list[Face]:
        """The rows of an image: one per face, or one with the reason why there is none."""
        if outputs is None or not image.crops:
            return [Face(self._without_face(image))]
        return list(self._faces(image, outputs))

    def decided(self, face: Face) -> Face:
        """A face that is accepted, or not, by this threshold in place of another."""
        row = face.row
        if row.face is None:
            return face
        accepted, reasons = self.decide(
            row.quality, tuple(reason for reason in row.reasons if reason != BELOW_THRESHOLD)
        )
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
        accepted = None if self.min_quality is None else False
        return Row(
            image.path,
            accepted=accepted,
            reasons=(NO_FACE,),
            smaller_faces=image.smaller,
            model_sha256=self.model.sha256,
        )

    def _faces(self, image: PreparedImage, outputs: FaceOutputs) -> Iterator[Face]:
        by_model = model_reasons(outputs)
        faces = zip(image.crops, image.detections, by_model, image.reasons, strict=True)
        for face, (crop, detection, of_model, of_image) in enumerate(faces):
            row = self._row(image, face, detection, outputs, in_order(of_model + of_image))
            norm = _to_float(outputs.norm, face)
            vector = outputs.embedding[face] if outputs.embedding.shape[1] else None
            yield Face(row, crop, vector, norm, image.found)

    def _row(
        self,
        image: PreparedImage,
        face: int,
        detection: Detection | None,
        outputs: FaceOutputs,
        reasons: tuple[str, ...],
    ) -> Row:
        quality = _to_float(outputs.quality, face)
        accepted, reasons = self.decide(quality, reasons)
        percentile = (
            None if self.calibration is None or quality is None else self.calibration.percentile(quality)
        )
        return Row(
            image.path,
            face=face,
            box=None if detection is None else _rounded(detection.box),
            points=None if detection is None else _rounded(detection.points.reshape(-1)),
            det_score=None if detection is None else round(detection.score, 4),
            pose=None if detection is None else [round(angle, 1) for angle in head_pose(detection.points)],
            percentile=percentile,
            quality=quality,
            uncertainty=_to_float(outputs.uncertainty, face),
            accepted=accepted,
            verdict=self._verdict(quality, reasons),
            reasons=reasons,
            smaller_faces=image.smaller,
            model_sha256=self.model.sha256,
        )

    def _verdict(self, quality: float | None, reasons: tuple[str, ...]) -> str | None:
        if quality is None or self.cutoffs is None:
            return None
        if NOT_A_FACE in reasons:
            return "not a face"
        return VERDICTS[bisect_right(self.cutoffs, quality)]


def _rounded(values: NDArray[np.float64]) -> list[float]:
    return [round(value, 2) for value in values.tolist()]


def _to_float(values: NDArray[np.float32] | None, face: int) -> float | None:
    """The shortest decimal of the float32 value; plain conversion adds digits that mean nothing."""
    return None if values is None else float(str(values[face]))
