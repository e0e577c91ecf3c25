"""Templates: pooled embeddings of several images of a person.

Images of one medium (the frames of a video) are averaged first, so that a long video does not outvote a photo, as in
IJB's protocol (Maze et al., ICB 2018); then the media are summed. With weights, a medium counts by the mean weight of
its images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Images whose weighted embeddings are processed at a time, in float64; all of IJB-C's would take 1.9 GB.
BLOCK = 16384
# Faces from this percentile of quality on have full weight in a template; below, it falls to the minimum. Chosen on 150
# held-out people, see docs/results/accuracy.md.
FULL_WEIGHT, MIN_WEIGHT = 30.0, 0.01


def pool(
    embedding: ArrayLike,
    template: ArrayLike,
    *,
    media: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    templates: int | None = None,
) -> NDArray[np.float32]:
    """Pool embeddings of images into templates, ``(T, d) float32`` of unit length.

    Args:
        embedding: ``(N, d)`` embeddings of images, unit length.
        template: ``(N,)`` row of each image's template, from 0; none without an image.
        media: ``(N,)`` medium of each image; None if every image is a medium of its own.
        weights: ``(N,)`` positive weights; None for equal ones. The inverse of a learned variance is a natural choice.
        templates: number of templates T; by default the highest row plus one.

    Examples:
        >>> pool([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], template=[0, 0, 1], weights=[3, 4, 1]).round(2).tolist()
        [[0.6000000238418579, 0.800000011920929], [0.0, 1.0]]
    """
    vectors, rows = np.asarray(embedding, dtype=np.float32), np.asarray(template, dtype=np.int64)
    share = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    medium = np.arange(len(rows)) if media is None else np.asarray(media)
    if not len(vectors) == len(rows) == len(share) == len(medium):
        raise ValueError("embeddings, templates, media and weights must have the same length")
    wrong = np.flatnonzero(~((share > 0) & np.isfinite(share)))
    if len(wrong):
        raise ValueError(f"weight {wrong[0]} is {share[wrong[0]]:g}; weights must be positive")
    sizes = np.bincount(rows, minlength=templates or 0)
    missing = np.flatnonzero(sizes == 0)
    if len(missing):
        raise ValueError(f"template {missing[0]} has no image")
    order, ends = np.lexsort((medium, rows)), np.cumsum(sizes)
    pooled = np.empty((len(sizes), vectors.shape[1]), dtype=np.float32)
    top = start = 0
    while top < len(sizes):
        # As many whole templates as fit into a block, but at least one.
        bottom = max(int(np.searchsorted(ends, start + BLOCK, side="right")), top + 1)
        inside = order[start : ends[bottom - 1]]
        pooled[top:bottom] = _pool_sorted(vectors[inside], rows[inside], medium[inside], share[inside])
        top, start = bottom, int(ends[bottom - 1])
    return pooled


def ranked_weights(quality: ArrayLike) -> NDArray[np.float64]:
    """Weights in (0, 1] from a quality of any range: the share of images that are no better."""
    values = np.asarray(quality, dtype=np.float64)
    return np.asarray(np.searchsorted(np.sort(values), values, side="right") / len(values))


def face_weights(percentile: ArrayLike) -> NDArray[np.float64]:
    """Weights of faces in a template, from percentiles of quality, 0 to 100; NaN (not calibrated) has full weight."""
    share = np.clip(np.asarray(percentile, dtype=np.float64) / FULL_WEIGHT, MIN_WEIGHT, 1.0)
    return np.nan_to_num(share, nan=1.0)


def _pool_sorted(
    vectors: NDArray[np.float32], rows: NDArray[np.int64], medium: NDArray[Any], share: NDArray[np.float64]
) -> NDArray[np.float64]:
    starts = np.flatnonzero(np.r_[True, (rows[1:] != rows[:-1]) | (medium[1:] != medium[:-1])])
    # Σ w x / Σ w of a medium, times its mean weight Σ w / n: Σ w x / n.
    images = np.diff(np.append(starts, len(rows)))
    summed = np.add.reduceat(vectors * share[:, None], starts, axis=0) / images[:, None]
    rows = rows[starts]
    pooled = np.add.reduceat(summed, np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]]), axis=0)
    length = np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
    return np.asarray(pooled / length)
