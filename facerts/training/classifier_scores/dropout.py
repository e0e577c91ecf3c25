"""Dropout before the heads with fixed masks, so that an image's score does not depend on when it is scored.

The masks are keyed by the number of the forward pass alone: all images, in any batch, go through the same subnetworks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from statistics import NormalDist

import torch
from torch import Tensor

from facerts.training.methods.noise import keyed_normal
from facerts.training.nn import FaceNetwork

# For runs trained without dropout: the rate that the authors of SER-FIQ use with ArcFace, in the same place.
DEFAULT_RATE = 0.5


@lru_cache(maxsize=4)
def keyed_masks(passes: int, features: int, rate: float) -> Tensor:
    """The features that each pass keeps, ``(passes, features) bool``; masks do not depend on the number of passes."""
    noise = keyed_normal(0, 0, torch.arange(passes), features)
    return noise.double() > NormalDist().inv_cdf(rate)


def dropped_embeddings(network: FaceNetwork, features: Tensor, passes: int, rate: float) -> Iterator[Tensor]:
    """The embeddings under dropout, one forward pass at a time.

    Args:
        network: in evaluation mode.
        features: ``(B, F)`` outputs of its trunk.
        passes: number of passes.
        rate: share of the features that a pass drops; the others are divided by 1 − rate.

    Yields:
        ``(B, d)`` embeddings, of any norm.
    """
    for mask in keyed_masks(passes, features.shape[1], rate).to(features.device):
        yield network.embedding(features * mask / (1.0 - rate))
