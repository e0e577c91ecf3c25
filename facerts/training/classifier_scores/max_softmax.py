"""Maximum softmax probability (MSP), of one classifier or as the mean over several.

Hendrycks, Gimpel: "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks", ICLR
2017; with a temperature T as in ODIN, Eq. 1 (Liang, Li, Srikant, ICLR 2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from pydantic import Field
from torch import Tensor

from facerts.training.classifier_scores.classifier import Activations, Classifier, ClassifierScore


def max_softmax(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """log max_k softmax(f/T)_k: ``(B, C)`` to ``(B,) float64``."""
    scaled = logits.double() / temperature
    top, index = scaled.max(dim=1, keepdim=True)
    # Sum the other classes separately: added to 1, they would be rounded away if the network is confident.
    others = (scaled - top).exp().scatter(1, index, 0.0).sum(dim=1)
    return -others.log1p()


def mean_softmax(members: Iterable[Tensor]) -> Tensor:
    """log max_k (1/M) Σ_m softmax(f_m)_k: logits ``(B, C)`` of M members, one at a time, to ``(B,) float64``.

    Members are the passes of MC dropout or the networks of an ensemble.

    Raises:
        ValueError: there are no members.
    """
    total, count = None, 0
    for logits in members:
        log_probability = logits.double().log_softmax(dim=1)
        total = log_probability if total is None else torch.logaddexp(total, log_probability)
        count += 1
    if total is None:
        raise ValueError("the mean needs at least one member")
    return total.amax(dim=1) - math.log(count)


class MaxSoftmax(ClassifierScore):
    """log max_k softmax(f/T)_k; ``temperature`` is T."""

    name = "max_softmax"
    temperature: float = Field(1.0, gt=0)

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        return max_softmax(classifier.logits(activations.embedding), self.temperature)
