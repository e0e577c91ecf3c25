"""Dropout at the input of the heads with fixed masks: a picture's passes do not depend on when it is scored.

The masks are keyed by their number alone, so that every picture, in whatever batch, sees the same thinned networks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from statistics import NormalDist

import torch
from torch import Tensor

from facerts.training.methods.noise import keyed_normal
from facerts.training.nn import FaceNetwork

# For runs that were trained without dropout: the rate of the authors of SER-FIQ on ArcFace, at the same place.
RATE = 0.5


@lru_cache(maxsize=4)
def keyed_masks(passes: int, features: int, rate: float) -> Tensor:
    """Which features each pass keeps: ``(passes, features) bool``; fewer passes are the first of more."""
    noise = keyed_normal(0, 0, torch.arange(passes), features)
    return noise.double() > NormalDist().inv_cdf(rate)


def dropped_embeddings(network: FaceNetwork, features: Tensor, passes: int, rate: float) -> Iterator[Tensor]:
    """The embeddings of each pass, one pass at a time.

    Args:
        network: in evaluation mode.
        features: ``(B, F)``, of its trunk.
        passes: how many.
        rate: share of the features that a pass drops; the others are divided by 1 − rate.

    Yields:
        ``(B, d)``, of any length.
    """
    for mask in keyed_masks(passes, features.shape[1], rate).to(features.device):
        yield network.embedding(features * mask / (1.0 - rate))
