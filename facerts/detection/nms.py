"""Boxes that overlap, of which the best is kept; every detector's last step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def nms(boxes: NDArray[np.float64], scores: NDArray[np.floating], most: float) -> list[int]:
    """Non-maximum suppression: which boxes are left, the best first.

    Args:
        boxes: ``(N, 4)`` left, top, right, bottom.
        scores: ``(N,)``; of equal ones the first counts as better.
        most: overlap, intersection over union, up to which two boxes are two faces.
    """
    areas = np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1)
    order = np.argsort(-scores, kind="stable")
    kept = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(int(best))
        upper = np.maximum(boxes[best, :2], boxes[order, :2])
        lower = np.minimum(boxes[best, 2:], boxes[order, 2:])
        shared = np.prod(np.maximum(lower - upper, 0), axis=1)
        # As a product, as the union of two empty boxes is nothing.
        order = order[shared <= most * (areas[best] + areas[order] - shared)]
    return kept
