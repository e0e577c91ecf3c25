"""Non-maximum suppression, the last step of every detector."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def nms(boxes: NDArray[np.float64], scores: NDArray[np.floating], max_iou: float) -> list[int]:
    """Indices of the best of each group of overlapping boxes, best first.

    Args:
        boxes: ``(N, 4)`` left, top, right, bottom.
        scores: ``(N,)``; of equal scores the first counts as better.
        max_iou: maximum intersection over union of two boxes that are both kept.
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
        # Multiplied rather than divided, since the union of two empty boxes is 0.
        order = order[shared <= max_iou * (areas[best] + areas[order] - shared)]
    return kept
