"""A face as insightface gives it, and the pictures that it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import ImageError
from facerts.scoring import Scored

Image = NDArray[np.uint8]

# What is said of a face by its crop alone.
JUDGED = ("quality", "percentile", "uncertainty", "accepted")


class Face(dict[str, Any]):
    """What is known of a face, as attributes and as entries.

    Unlike insightface's, an attribute that is not there is an ``AttributeError`` and not None.

    Attributes:
        bbox: ``(4,) float32`` left, top, right, bottom in pixels.
        kps: ``(5, 2) float32`` eyes, nose, corners of the mouth.
        det_score: of the detector, 0 to 1.
        embedding: ``(d,) float32``, as long as before it was normalized where the model tells that, as insightface
            has it.
        quality: higher is better; None where the model has none.
        percentile: 0 to 100, the share of the faces that the model was calibrated on which scored lower; None where it
            was not calibrated.
        uncertainty: the method's own number; None where the model has none.
        accepted: whether the quality reaches the threshold; None where no threshold was asked for.
    """

    bbox: NDArray[np.float32]
    kps: NDArray[np.float32]
    det_score: float
    embedding: NDArray[np.float32]
    quality: float | None
    percentile: float | None
    uncertainty: float | None
    accepted: bool | None

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"this face has no {name!r}; it has {', '.join(self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    @property
    def embedding_norm(self) -> float:
        """Length of the embedding; 1 where the model hides it."""
        return float(np.linalg.norm(self.embedding))

    @property
    def normed_embedding(self) -> NDArray[np.float32]:
        """``(d,) float32``, unit length."""
        return self.embedding / np.float32(self.embedding_norm)


def read_bgr(img: Image, name: str) -> Image:
    """``(H, W, 3) uint8`` RGB from BGR.

    Args:
        img: as ``cv2.imread`` gives it.
        name: names the picture in errors.

    Raises:
        ImageError: not a BGR picture.
    """
    if img is None:
        raise ImageError(f"{name} is None, which cv2.imread gives for a file that it cannot read")
    array = isinstance(img, np.ndarray)
    if not array or img.ndim != 3 or img.shape[2] != 3 or img.dtype != np.uint8 or 0 in img.shape:
        what = f"{img.shape} {img.dtype}" if array else type(img).__name__
        raise ImageError(f"{name} must be an (H, W, 3) uint8 BGR array, as cv2.imread gives it, not {what}")
    return np.ascontiguousarray(img[..., ::-1])


def faces_of(scored: list[Scored]) -> list[Face]:
    """The faces of a picture that a detector looked at.

    Raises:
        ImageError: it could not be read.
    """
    for entry in scored:
        if entry.row.error is not None:
            raise ImageError(entry.row.error)
    return [_face(entry) for entry in scored if entry.row.face is not None]


def _face(entry: Scored) -> Face:
    row, unit = entry.row, entry.embedding
    assert unit is not None
    return Face(
        bbox=np.array(row.box, dtype=np.float32),
        kps=np.array(row.points, dtype=np.float32).reshape(5, 2),
        det_score=row.det_score,
        embedding=unit if entry.norm is None else unit * np.float32(entry.norm),
        **{name: getattr(row, name) for name in JUDGED},
    )
