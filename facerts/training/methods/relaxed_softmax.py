"""Relaxed softmax: a learned inverse temperature for each image.

Neumann, Zisserman, Vedaldi: "Relaxed Softmax: Efficient Confidence Auto-Calibration for Safe Pedestrian
Detection", NeurIPS 2018 workshop on Machine Learning for Intelligent Transportation Systems.

A second head predicts α(x) = 1/T(x) > 0, which multiplies all logits of the image:

    α = softplus(x + b),   softplus(b) = 1,   so that α = 1 at x = 0, where a BatchNorm starts x
    L = CE(α s')                                                      s' the ArcFace logits

α is a confidence: it may grow where the right identity wins and must shrink where it is beaten.
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F

from facerts.training.methods.base import (
    Batch,
    ClassificationMethod,
    ImageTerms,
    MarginConfig,
    Outputs,
    unit_embedding,
)
from facerts.training.nn.heads import HeadSpec

# softplus(b) = log(1 + exp b) = 1.
BIAS = math.log(math.e - 1.0)
# Far below 0 softplus is 0 in float32, and the temperature 1/α would be infinite.
SMALLEST_ALPHA = 1e-4


def inverse_temperature(x: Tensor) -> Tensor:
    """α = softplus(x + b): ``(B, 1)`` to ``(B,)``; 1 at x = 0, positive, rising."""
    return F.softplus(x.squeeze(1) + BIAS).clamp_min(SMALLEST_ALPHA)


class RelaxedSoftmax(ClassificationMethod):
    """ArcFace logits multiplied by a confidence that the network predicts; quality is α."""

    name = "relaxed_softmax"
    Config = MarginConfig

    def heads(self) -> dict[str, HeadSpec]:
        # Without the norm the flattened features of a large network drive α to its bounds within a few steps.
        return {"confidence": HeadSpec(1, batch_norm=True)}

    def image_terms(self, outputs: Outputs, batch: Batch) -> ImageTerms:
        alpha = inverse_temperature(outputs["confidence"])
        return ImageTerms(outputs["embedding"], temperature=1.0 / alpha, per_image={"alpha": alpha.detach()})

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        alpha = inverse_temperature(outputs["confidence"])
        return {**unit_embedding(outputs), "quality": alpha, "uncertainty": 1.0 / alpha}
