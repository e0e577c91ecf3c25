"""Quality for faces that insightface found and embedded with models of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import Error, ModelError
from facerts.images.align import align
from facerts.integrations.insightface.face import JUDGED, Image, read_bgr
from facerts.scoring import Scorer
from facerts.scoring.pipeline import score_batch
from facerts.scoring.prepare import Prepared


def add_quality(
    faces: Sequence[Any],
    img: Image,
    scorer: Scorer,
    *,
    min_quality: float | None = None,
    keep: float | None = None,
) -> None:
    """Give faces their ``quality``, ``percentile``, ``uncertainty`` and ``accepted``, see ``Face``.

    What else they have stays as it is.

    Args:
        faces: of one picture, with ``kps``, such as insightface's ``FaceAnalysis.get`` gives.
        img: the picture, ``(H, W, 3) uint8`` BGR.
        scorer: from ``facerts.load``; its detector is not asked.
        min_quality: faces at or above it are accepted.
        keep: accept as the model's own threshold for this share of faces does.

    Raises:
        ImageError: not such a picture.
        ModelError: the model has no quality, or no threshold for the share of faces to keep.
        Error: a face has no five points.

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
    picture = read_bgr(img, "img")
    crops = [align(picture, _points(face, number)) for number, face in enumerate(faces)]
    judge = scorer.judge(min_quality=min_quality, keep=keep)
    (scored,) = score_batch(judge, [Prepared("img", crops, [None] * len(crops))])
    for face, entry in zip(faces, scored, strict=False):  # where there are no faces, one entry says so
        if entry.row.quality is None:
            raise ModelError(f"{scorer.embedder.name} has no quality to give to faces")
        for name in JUDGED:
            setattr(face, name, getattr(entry.row, name))


def _points(face: Any, number: int) -> NDArray[np.float64]:
    """``(5, 2)``.

    Raises:
        Error: the face has none.
    """
    kps = getattr(face, "kps", None)
    points = np.array([] if kps is None else kps, dtype=np.float64)
    if points.shape != (5, 2) or not np.isfinite(points).all() or not np.ptp(points, axis=0).any():
        raise Error(
            f"face {number} has no five points to align it by (its kps is {kps}); use a detector that gives them"
        )
    return points
