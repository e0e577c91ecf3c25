from __future__ import annotations

import numpy as np
import pytest

from facerts.detection.nms import nms
from tests.detectors import iou


@pytest.mark.parametrize("seed", range(5))
def test_nms_matches_a_slow_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 40, (120, 2)).astype(np.float64)
    boxes = np.hstack([corners, corners + rng.integers(0, 20, (120, 2))])
    scores = rng.integers(0, 20, 120) / 20
    kept: list[int] = []
    for one in sorted(range(120), key=lambda number: (-scores[number], number)):
        if all(iou(boxes[one], boxes[better]) <= 0.4 for better in kept):
            kept.append(one)
    assert nms(boxes, scores, 0.4) == kept
    assert 10 < len(kept) < 110


def test_nms_of_no_boxes_is_empty() -> None:
    assert nms(np.empty((0, 4)), np.empty(0), 0.4) == []
