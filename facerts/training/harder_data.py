"""Harder training data, to compare methods: few images per identity, identities with few images, wrong labels.

The three scenarios are those of Aljundi, Patel, Sulc, Olmeda, Chumerin: "Contrastive Classification and Representation
Learning with Probabilistic Interpretation" (ESupCon), AAAI 2023. What happens to an image depends only on the run's
seed, the labels and the image's index, so that milder settings keep a superset of the images and the same wrong labels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Separate these random numbers from those of the epochs' orders, whose keys are (seed, epoch).
_IMAGES_KEY = 0x1_0FE3
_STEP_KEY = 0x1_57E9
_NOISE_KEY = 0x1_BAD1


def kept_images(
    labels: NDArray[np.int64], *, images_per_identity: int | None, imbalance: float, seed: int
) -> NDArray[np.int64]:
    """``(K,)`` rising indices of images that remain with few per identity, and fewer of half of the identities.

    Of the n images of an identity, n' = min(n, images_per_identity) remain first. Of these, half of the identities,
    chosen at random, keep max(1, round(imbalance · n')), and the others keep all. Labels ``(N,)`` are in ``0 … C-1``
    without gaps; ``imbalance``, IR in the paper, is at most 1.
    """
    images = np.bincount(labels)
    limits = images if images_per_identity is None else np.minimum(images, images_per_identity)
    few = np.random.default_rng((seed, _STEP_KEY)).permutation(len(images)) < len(images) // 2
    limits = np.where(few, np.maximum(1, np.rint(imbalance * limits)), limits).astype(np.int64)
    if np.array_equal(limits, images):
        return np.arange(len(labels))
    # Each identity's images in a random order, of which the first are kept.
    order = np.lexsort((np.random.default_rng((seed, _IMAGES_KEY)).random(len(labels)), labels))
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels)) - np.repeat(np.cumsum(images) - images, images)
    return np.flatnonzero(rank < limits[labels])


def noisy_labels(labels: NDArray[np.int64], *, identities: int, share: float, seed: int) -> NDArray[np.int64]:
    """Labels ``(N,)``, each replaced with probability ``share`` by another, uniform over the other identities.

    With much noise, one of the two or more identities may have no image left.
    """
    random = np.random.default_rng((seed, _NOISE_KEY))
    wrong = random.random(len(labels)) < share
    others = (labels + random.integers(1, identities, len(labels))) % identities
    return np.where(wrong, others, labels)
