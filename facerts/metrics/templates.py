"""Several images of a person as one template: pooled embeddings.

Images of one medium (the frames of a video) are averaged first, so that a long video does not outvote a photo, as
IJB's protocol has it (Maze et al., ICB 2018); then media are added. With weights, a medium counts by the mean weight of
its images.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pool(
    embedding: ArrayLike,
    template: ArrayLike,
    *,
    media: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    templates: int | None = None,
) -> NDArray[np.float32]:
    """Templates from images.

    Args:
        embedding: ``(N, d)`` of images, unit length.
        template: ``(N,)`` row of each image's template, from 0.
        media: ``(N,)`` medium of each image; None where every image is one by itself.
        weights: ``(N,)`` above 0; None for equal ones. The inverse of a learned variance is the natural choice.
        templates: T; by default the highest row and one.

    Returns:
        ``(T, d) float32`` of unit length.

    Raises:
        ValueError: lengths differ, a weight is not above 0, or a template has no image.
    """
    vectors, rows = np.asarray(embedding, dtype=np.float32), np.asarray(template, dtype=np.int64)
    share = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    medium = np.arange(len(rows)) if media is None else np.asarray(media)
    if not len(vectors) == len(rows) == len(share) == len(medium):
        raise ValueError("embeddings, templates, media and weights must be as many as each other")
    wrong = np.flatnonzero(~((share > 0) & np.isfinite(share)))
    if len(wrong):
        raise ValueError(f"weight {wrong[0]} is {share[wrong[0]]:g}; weights lie above 0")
    count = int(rows.max()) + 1 if templates is None else templates
    missing = np.flatnonzero(np.bincount(rows, minlength=count) == 0)
    if len(missing):
        raise ValueError(f"template {missing[0]} has no image")
    order = np.lexsort((medium, rows))
    rows, medium, share = rows[order], medium[order], share[order]
    starts = np.flatnonzero(np.r_[True, (rows[1:] != rows[:-1]) | (medium[1:] != medium[:-1])])
    # Σ w x / Σ w of a medium, times its mean weight Σ w / n: Σ w x / n.
    images = np.diff(np.append(starts, len(rows)))
    summed = np.add.reduceat(vectors[order] * share[:, None], starts, axis=0) / images[:, None]
    rows = rows[starts]
    pooled = np.add.reduceat(summed, np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]]), axis=0)
    length = np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
    return np.asarray(pooled / length, dtype=np.float32)


def ranked_weights(quality: ArrayLike) -> NDArray[np.float64]:
    """Weights from a quality of any range: the share of images that are no better, in (0, 1]."""
    values = np.asarray(quality, dtype=np.float64)
    return np.asarray(np.searchsorted(np.sort(values), values, side="right") / len(values))
