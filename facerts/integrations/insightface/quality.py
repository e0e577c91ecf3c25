"""Quality for faces that insightface found and embedded with its own models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import Error, ModelError
from facerts.images.align import align
from facerts.integrations.insightface.face import CROP_SCORES, BgrImage, read_bgr
from facerts.scoring import Scorer
from facerts.scoring.pipeline import score_batch
from facerts.scoring.prepare import PreparedImage
from facerts.scoring.reasons import crop_reasons


def add_quality(
    faces: Sequence[Any],
    img: BgrImage,
    scorer: Scorer,
    *,
    min_quality: float | None = None,
    keep: float | None = None,
) -> None:
    """Set ``quality``, ``percentile``, ``uncertainty``, ``accepted`` and ``reasons`` of faces, see ``Face``.

    Reasons are those that the crop shows, not those of the detection. The faces' other attributes do not change.

    Args:
        faces: the faces of one image, with ``kps``, such as those from insightface's ``FaceAnalysis.get``.
        img: the image, ``(H, W, 3) uint8`` BGR.
        scorer: from ``facerts.load``; its detector is not used.
        min_quality: accept faces with at least this quality.
        keep: accept faces above the model's threshold that keeps this share of its calibration faces.

    Raises:
        ImageError: ``img`` is not such an array.
        ModelError: the model has no quality, or no threshold for ``keep``.
        Error: a face does not have five landmarks.

    Examples:
        >>> from types import SimpleNamespace
        >>> import numpy as np
        >>> import facerts
        >>> from facerts.datasets.synthetic import draw_face
        >>> image = np.pad(draw_face(0, 0), ((60, 60), (60, 60), (0, 0)), mode="edge")[..., ::-1]
        >>> points = np.array([[38.3, 51.7], [73.5, 51.5], [56.0, 71.7], [41.5, 92.4], [70.7, 92.2]]) + 60
        >>> face = SimpleNamespace(kps=points)  # as insightface finds it
        >>> add_quality([face], image, facerts.load(), min_quality=-2)
        >>> face.accepted
        True
    """
    image = read_bgr(img, "img")
    crops = [align(image, _points(face, number)) for number, face in enumerate(faces)]
    row_builder = scorer.row_builder(min_quality=min_quality, keep=keep)
    prepared = PreparedImage("img", crops, [None] * len(crops), [crop_reasons(crop) for crop in crops])
    (scored,) = score_batch(row_builder, [prepared])
    for face, entry in zip(faces, scored, strict=False):  # without faces there is one entry that says so
        if entry.row.quality is None:
            raise ModelError(f"{scorer.embedder.name} has no quality")
        for name in CROP_SCORES:
            setattr(face, name, getattr(entry.row, name))


def _points(face: Any, number: int) -> NDArray[np.float64]:
    """The landmarks of a face, ``(5, 2)`` in pixels.

    Raises:
        Error: the face has no usable landmarks.
    """
    kps = getattr(face, "kps", None)
    points = np.array([] if kps is None else kps, dtype=np.float64)
    if points.shape != (5, 2) or not np.isfinite(points).all() or not np.ptp(points, axis=0).any():
        raise Error(
            f"face {number} has no five landmarks to align it with (its kps is {kps}); use a detector that returns them"
        )
    return points
