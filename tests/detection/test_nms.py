from __future__ import annotations

import numpy as np
import pytest

from facerts.detection.detector import nms
from tests.detectors import iou


@pytest.mark.parametrize("seed", range(5))
def test_nms_matches_a_slow_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 40, (120, 2)).astype(np.float64)
    boxes = np.hstack([corners, corners + rng.integers(0, 20, (120, 2))])
    scores = rng.integers(0, 20, 120) / 20
    kept: list[int] = []
    for row in sorted(range(120), key=lambda number: (-scores[number], number)):
        if all(iou(boxes[row], boxes[better]) <= 0.4 for better in kept):
            kept.append(row)
    assert nms(boxes, scores, 0.4) == kept
    assert 10 < len(kept) < 110
    assert nms(boxes[:0], scores[:0], 0.4) == []
