"""Embeddings of many faces as one .npz file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from facerts.errors import Error
from facerts.io.files import atomic_write
from facerts.scoring.row_builder import ScoredFace


def write_embeddings(path: str | Path, scored: Sequence[ScoredFace]) -> None:
    """Write embeddings and scores as arrays.

    The arrays are ``paths``, ``faces``, ``embeddings (N, d) float32``, ``quality``, ``uncertainty`` and ``norm``, and
    ``failed_paths`` with ``errors`` for the images that could not be read. A quality that the model does not have is
    NaN. Where a detector found faces there are also ``det_score`` and ``face_size``, the pixels between the eyes; they
    are NaN for images that were aligned crops.

    Raises:
        Error: the file does not end in .npz, or no image has a face.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise Error(f"{path}: embeddings are written as .npz; choose a file with that suffix")
    faces = [entry for entry in scored if entry.embedding is not None]
    failed = [entry.row for entry in scored if entry.row.error is not None]
    if not faces:
        raise Error(f"no face was found in any of the {len(scored)} images, so there is nothing to write")
    arrays = {
        "paths": np.array([entry.row.path for entry in faces]),
        "faces": np.array([entry.row.face for entry in faces], dtype=np.int32),
        "embeddings": np.stack([entry.embedding for entry in faces if entry.embedding is not None]),
        "quality": _floats([entry.row.quality for entry in faces]),
        "uncertainty": _floats([entry.row.uncertainty for entry in faces]),
        "norm": _floats([entry.norm for entry in faces]),
        "failed_paths": np.array([row.path for row in failed], dtype=str),
        "errors": np.array([row.error for row in failed], dtype=str),
    }
    if any(entry.row.points is not None for entry in faces):
        arrays["det_score"] = _floats([entry.row.det_score for entry in faces])
        arrays["face_size"] = _floats([_eye_distance(entry.row.points) for entry in faces])
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def _eye_distance(points: Sequence[float] | None) -> float | None:
    return None if points is None else float(np.hypot(points[2] - points[0], points[3] - points[1]))


def _floats(values: Sequence[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float32)
