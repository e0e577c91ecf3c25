"""A face as insightface represents it, and BGR input images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import ImageError
from facerts.scoring import ScoredFace

BgrImage = NDArray[np.uint8]

# Attributes that come from the crop alone.
CROP_SCORES = ("quality", "percentile", "uncertainty", "accepted", "reasons")


class Face(dict[str, Any]):
    """One face, with values as attributes and as items.

    Unlike in insightface, a missing attribute raises ``AttributeError`` instead of being None.

    Attributes:
        bbox: ``(4,) float32`` left, top, right and bottom in pixels.
        kps: ``(5, 2) float32`` eyes, nose and corners of the mouth in pixels.
        det_score: the score of the detector, 0 to 1.
        embedding: ``(d,) float32``, not normalized, as in insightface, if the model outputs the norm.
        quality: higher is better; None if the model has no quality.
        percentile: the percentage, 0 to 100, of the faces used for calibration that scored lower; None if the model
            is not calibrated.
        uncertainty: the uncertainty in the units of the method; None if the model has none.
        accepted: whether the quality reaches the threshold; None if there is no threshold.
        reasons: what makes the face poor, such as "blurred"; see ``facerts.Row``.
    """

    bbox: NDArray[np.float32]
    kps: NDArray[np.float32]
    det_score: float
    embedding: NDArray[np.float32]
    quality: float | None
    percentile: float | None
    uncertainty: float | None
    accepted: bool | None
    reasons: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"this face has no {name!r}; it has {', '.join(self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    @property
    def embedding_norm(self) -> float:
        """Length of the embedding; 1 if the model does not output the norm."""
        return float(np.linalg.norm(self.embedding))

    @property
    def normed_embedding(self) -> NDArray[np.float32]:
        """``(d,) float32``, unit length."""
        return self.embedding / np.float32(self.embedding_norm)


def read_bgr(img: BgrImage, name: str) -> NDArray[np.uint8]:
    """``(H, W, 3) uint8`` RGB from BGR.

    Args:
        img: an image as returned by ``cv2.imread``.
        name: the name of the image in errors.

    Raises:
        ImageError: ``img`` is not a BGR image.
    """
    if img is None:
        raise ImageError(f"{name} is None, which cv2.imread returns for a file that it cannot read")
    array = isinstance(img, np.ndarray)
    if not array or img.ndim != 3 or img.shape[2] != 3 or img.dtype != np.uint8 or 0 in img.shape:
        what = f"{img.shape} {img.dtype}" if array else type(img).__name__
        raise ImageError(f"{name} must be an (H, W, 3) uint8 BGR array as returned by cv2.imread, not {what}")
    return np.ascontiguousarray(img[..., ::-1])


def to_faces(scored: list[ScoredFace]) -> list[Face]:
    """The faces of one scored photo.

    Raises:
        ImageError: the photo could not be read.
    """
    for entry in scored:
        if entry.row.error is not None:
            raise ImageError(entry.row.error)
    return [_face(entry) for entry in scored if entry.row.face is not None]


def _face(entry: ScoredFace) -> Face:
    row, unit = entry.row, entry.embedding
    assert unit is not None
    return Face(
        bbox=np.array(row.box, dtype=np.float32),
        kps=np.array(row.points, dtype=np.float32).reshape(5, 2),
        det_score=row.det_score,
        embedding=unit if entry.norm is None else unit * np.float32(entry.norm),
        **{name: getattr(row, name) for name in CROP_SCORES},
    )
