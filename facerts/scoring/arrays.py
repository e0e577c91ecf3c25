"""Embeddings of many faces as one .npz file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from facerts.errors import Error
from facerts.io.files import atomic_write
from facerts.scoring.row_builder import Scored


def write_embeddings(path: str | Path, scored: Sequence[Scored]) -> None:
    """Write ``paths``, ``faces``, ``embeddings (N, d) float32``, ``quality``, ``uncertainty``, ``norm``, and
    ``failed_paths`` with ``errors``; a quality that the model does not have is NaN. Where a detector found the faces,
    also ``det_score`` and ``face_size``, the pixels between the eyes.

    Raises:
        Error: the file's ending is not .npz, or no picture gave a face.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise Error(f"{path}: embeddings are written as .npz; choose that ending")
    faces = [entry for entry in scored if entry.embedding is not None]
    failed = [entry.row for entry in scored if entry.row.error is not None]
    if not faces:
        raise Error(f"no face was found in any of the {len(scored)} images, so there is nothing to write")
    arrays = {
        "paths": np.array([entry.row.path for entry in faces]),
        "faces": np.array([entry.row.face for entry in faces], dtype=np.int32),
        "embeddings": np.stack([entry.embedding for entry in faces if entry.embedding is not None]),
        "quality": _numbers([entry.row.quality for entry in faces]),
        "uncertainty": _numbers([entry.row.uncertainty for entry in faces]),
        "norm": _numbers([entry.norm for entry in faces]),
        "failed_paths": np.array([row.path for row in failed], dtype=str),
        "errors": np.array([row.error for row in failed], dtype=str),
    }
    if all(entry.row.points is not None for entry in faces):
        arrays["det_score"] = _numbers([entry.row.det_score for entry in faces])
        arrays["face_size"] = _numbers([_between_eyes(entry.row.points) for entry in faces])
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def _between_eyes(points: Sequence[float] | None) -> float | None:
    return None if points is None else float(np.hypot(points[2] - points[0], points[3] - points[1]))


def _numbers(values: Sequence[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float32)
