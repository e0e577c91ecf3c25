"""Faces of which half are degraded, so that many pairs have one poor image, as in XQLFW."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.changed import ChangedCrops
from facerts.images.corruptions import degrade

# A list of its own, so that kinds that are added later do not change earlier results.
KINDS = ("blur", "low_resolution", "jpeg", "noise", "occlusion", "light")
SHARE = 0.5

# Separates the random numbers of the choice from those of the degradation.
_CHOICE, _DEGRADATION = 0xF19A, 0xF19B


def half_degraded(source: Source, seed: int = 0) -> Source:
    """Aligned faces of which half, at random, are degraded by one of ``KINDS`` at a uniformly random severity.

    In XQLFW (Knoche et al., "Cross-quality LFW", FG 2021) the images of a pair differ strongly in quality. Whether and
    how an image is degraded depends only on the seed and its position in the source.

    Args:
        source: aligned images.
        seed: seed of the random choices.
    """

    def change(crop: NDArray[np.uint8], index: int) -> NDArray[np.uint8]:
        kind, severity = degradation(index, seed)
        return degrade(crop, kind, severity, (seed, index, _DEGRADATION)) if severity else crop

    return ChangedCrops(source, "half degraded", change, f"half degraded, seed {seed}")


def degradation(index: int, seed: int) -> tuple[str, float]:
    """Kind and severity of an image's degradation, a severity of 0 for none."""
    random = np.random.default_rng((seed, index, _CHOICE))
    if random.random() >= SHARE:
        return KINDS[0], 0.0
    return KINDS[random.integers(len(KINDS))], float(1.0 - random.random())
