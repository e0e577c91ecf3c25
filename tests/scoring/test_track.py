from __future__ import annotations

import numpy as np
import pytest

from facerts.images import CROP_SIZE
from facerts.metrics.pooling import face_weights
from facerts.scoring.row import Row
from facerts.scoring.row_builder import ScoredFace
from facerts.scoring.track import TrackBuilder, joined_best

CROP = np.zeros((CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)


def track(embeddings: np.ndarray, start: float, percentiles: list[float]) -> TrackBuilder:
    builder = TrackBuilder()
    for at, (embedding, percentile) in enumerate(zip(embeddings, percentiles, strict=True)):
        row = Row("clip.mp4", face=0, percentile=percentile, quality=percentile)
        builder.add(int(start), start + at / 10, ScoredFace(row, CROP, embedding.astype(np.float32)), most=1)
    return builder


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_tracks_are_joined_by_the_mean_cosine_of_their_faces() -> None:
    random = np.random.default_rng(0)
    center = random.normal(size=32)
    faces = unit(center + 1.2 * random.normal(size=(8, 32)))
    percentiles = [80.0, 3.0, 15.0, 60.0]
    one, other = track(faces[:4], 0, percentiles), track(faces[4:], 5, percentiles)
    weights = face_weights(percentiles)
    cosine = float(np.average(faces[:4] @ faces[4:].T, weights=np.outer(weights, weights)))
    assert cosine < 0.6 * float(unit(weights @ faces[:4][None])[0] @ unit(weights @ faces[4:][None])[0])
    assert joined_best([one], other, cosine - 1e-6) is one
    assert joined_best([one], other, cosine + 1e-6) is None


def test_a_joined_track_has_the_mean_of_all_faces() -> None:
    faces = unit(np.random.default_rng(1).normal(size=(4, 32)))
    whole = track(faces, 0, [80.0, 3.0, 15.0, 60.0])
    first, second = track(faces[:2], 0, [80.0, 3.0]), track(faces[2:], 0.2, [15.0, 60.0])
    first.join(second, 1)
    assert first.mean == pytest.approx(whole.mean, abs=1e-6)


def test_tracks_that_are_seen_at_the_same_time_are_two_people() -> None:
    faces = np.tile(np.eye(1, 8), (3, 1))
    assert joined_best([track(faces, 0, [80.0] * 3)], track(faces, 0.1, [80.0] * 3), 0.5) is None
