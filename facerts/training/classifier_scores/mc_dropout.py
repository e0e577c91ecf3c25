"""MC dropout: the mean softmax over several forward passes with dropout before the heads.

Gal, Ghahramani: "Dropout as a Bayesian Approximation", ICML 2016, Eq. 6.

The masks are keyed by the number of the forward pass alone: all images, in any batch, go through the same subnetworks,
so that an image's score does not depend on when it is scored.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import torch
from pydantic import Field
from torch import Tensor

from facerts.training.classifier_scores.classifier import Activations, Classifier, ClassifierScore
from facerts.training.classifier_scores.max_softmax import mean_softmax
from facerts.training.methods.noise import keyed_normal

# For runs trained without dropout: the rate that the authors of SER-FIQ use with ArcFace, in the same place.
DEFAULT_RATE = 0.5


@lru_cache(maxsize=4)
def keyed_masks(passes: int, features: int, rate: float) -> Tensor:
    """The features that each pass keeps, ``(passes, features) bool``; masks do not depend on the number of passes."""
    noise = keyed_normal(0, 0, torch.arange(passes), features)
    return noise.double() > NormalDist().inv_cdf(rate)


class DropoutScore(ClassifierScore):
    """Base of the scores that need several forward passes under dropout.

    Attributes:
        passes: number of forward passes.
        rate: share of the features that a pass drops; by default the rate of the run, or 0.5 if it was trained without
            dropout.
    """

    passes: int = Field(100, ge=2)
    rate: float | None = Field(None, gt=0, lt=1)

    def embeddings(self, classifier: Classifier, activations: Activations) -> list[Tensor]:
        """The embeddings ``(B, d)`` of each pass, of any norm."""
        rate = self.rate or classifier.recipe.backbone.dropout or DEFAULT_RATE
        features = activations.features
        masks = keyed_masks(self.passes, features.shape[1], rate).to(features.device)
        return [classifier.network.embedding(features * mask / (1.0 - rate)) for mask in masks]


class MCDropout(DropoutScore):
    """Maximum of the mean softmax over several passes under dropout."""

    name = "mc_dropout"

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        return mean_softmax(map(classifier.logits, self.embeddings(classifier, activations)))
