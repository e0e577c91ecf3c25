"""Relaxed softmax: a learned inverse temperature for each image.

Neumann, Zisserman, Vedaldi: "Relaxed Softmax: Efficient Confidence Auto-Calibration for Safe Pedestrian
Detection", NeurIPS 2018 workshop on Machine Learning for Intelligent Transportation Systems.

A second head predicts α(x) = 1/T(x) > 0, which multiplies all logits of the image:

    α = softplus(x + b),   softplus(b) = 1,   so that α = 1 at x = 0, the initial mean after BatchNorm
    L = CE(α s')                                                      s' are the ArcFace logits

α is a confidence: the loss raises it where the right identity wins and lowers it where another one does.
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F

from facerts.losses.face_loss import ArcMarginLoss, ImageTerms, Noise, Outputs, settings
from facerts.nn.twin_heads import HeadSpec

# softplus(b) = log(1 + exp b) = 1.
BIAS = math.log(math.e - 1.0)
# Softplus underflows to 0 in float32, which would make the temperature 1/α infinite.
MIN_ALPHA = 1e-4


def inverse_temperature(x: Tensor) -> Tensor:
    """α = softplus(x + b): ``(B, 1)`` to ``(B,)``; positive, increasing, 1 at x = 0."""
    return F.softplus(x.squeeze(1) + BIAS).clamp_min(MIN_ALPHA)


@settings
class RelaxedSoftmax(ArcMarginLoss):
    """ArcFace logits multiplied by a predicted confidence α; quality is α."""

    name = "relaxed_softmax"

    def heads(self) -> dict[str, HeadSpec]:
        # Without BatchNorm, the flattened features of a large network drive α to its bounds within a few steps.
        return {"confidence": HeadSpec(1, batch_norm=True)}

    def image_terms(self, outputs: Outputs, noise: Noise) -> ImageTerms:
        alpha = inverse_temperature(outputs["confidence"])
        return ImageTerms(outputs["embedding"], temperature=1.0 / alpha, per_image={"alpha": alpha.detach()})

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        alpha = inverse_temperature(outputs["confidence"])
        return self.scored(outputs, quality=alpha, uncertainty=1.0 / alpha)
