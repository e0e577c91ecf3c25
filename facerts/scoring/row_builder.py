"""What a model gives for faces to rows: the numbers, and whether a face is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.detection import Detection
from facerts.embedding import Embedder, FaceOutputs
from facerts.errors import ModelError
from facerts.onnx.contract import Calibration
from facerts.scoring.prepare import Prepared
from facerts.scoring.row import LOW_QUALITY, NO_FACE, Row


@dataclass(frozen=True)
class Scored:
    """A row, and the crop, embedding and norm of its face; None where there is no face."""

    row: Row
    crop: NDArray[np.uint8] | None = None
    embedding: NDArray[np.float32] | None = None
    norm: float | None = None


@dataclass(frozen=True)
class RowBuilder:
    """Makes rows.

    Attributes:
        model: whose outputs they are of.
        min_quality: faces at or above it are accepted; None makes no decision.
        calibration: of the model, for percentiles; None leaves them out.
    """

    model: Embedder
    min_quality: float | None = None
    calibration: Calibration | None = None

    def rows(self, picture: Prepared, outputs: FaceOutputs | None) -> list[Scored]:
        """The picture's rows, one for each face, or one that says why there is none.

        Args:
            picture: as it was prepared.
            outputs: of its crops, in their order; None where it has none.

        Raises:
            ModelError: faces are to be accepted by quality, and the model has none.
        """
        if outputs is None or not picture.crops:
            return [Scored(self._without_face(picture))]
        if self.min_quality is not None and outputs.quality is None:
            raise ModelError(f"{self.model.name} has no quality, so it cannot accept faces by a threshold")
        return list(self._faces(picture, outputs))

    def _without_face(self, picture: Prepared) -> Row:
        if picture.error is not None:
            return Row(picture.path, error=picture.error, model_sha256=self.model.sha256)
        accepted = None if self.min_quality is None else False
        return Row(picture.path, accepted=accepted, reason=NO_FACE, model_sha256=self.model.sha256)

    def _faces(self, picture: Prepared, outputs: FaceOutputs) -> Iterator[Scored]:
        faces = zip(picture.crops, picture.detections, strict=True)
        for face, (crop, detection) in enumerate(faces):
            row = self._row(picture.path, face, detection, outputs)
            yield Scored(row, crop, outputs.embedding[face], _number(outputs.norm, face))

    def _row(self, path: str, face: int, detection: Detection | None, outputs: FaceOutputs) -> Row:
        quality = _number(outputs.quality, face)
        accepted = None if self.min_quality is None or quality is None else quality >= self.min_quality
        percentile = (
            None if self.calibration is None or quality is None else self.calibration.percentile(quality)
        )
        return Row(
            path,
            face=face,
            box=None if detection is None else _rounded(detection.box),
            points=None if detection is None else _rounded(detection.points.reshape(-1)),
            det_score=None if detection is None else round(detection.score, 4),
            quality=quality,
            percentile=percentile,
            uncertainty=_number(outputs.uncertainty, face),
            accepted=accepted,
            reason=LOW_QUALITY if accepted is False else None,
            model_sha256=self.model.sha256,
        )


def _rounded(values: NDArray[np.float64]) -> list[float]:
    return [round(value, 2) for value in values.tolist()]


def _number(values: NDArray[np.float32] | None, face: int) -> float | None:
    """Without the digits that float32 never had."""
    return None if values is None else float(str(values[face]))
