"""RTS: Random Temperature Scaling.

Shang, Huang, Shi, Liu, Liu, Wang, Sun, Xie, Qiao: "Improving Training and Inference of Face Recognition Models via
Random Temperature Scaling", AAAI 2023.

A second head predicts the log scales z ∈ R^δ of a random temperature; v = exp(z). One step of Algorithm 1:

    ε_i ~ N(0, 1),   t = (1/(δ − 2)) Σ_i v_i ε_i²            one temperature per image and step
    s_k = s'_k / t                                           s' are the ArcFace logits
    L = CE(s) + λ L_KL,   L_KL = (1/δ) Σ_i ½ (v_i − log v_i − 1)                                       (Eq. 6)

With one shared v, the temperature is distributed as Γ(shape δ/2, rate (δ/2 − 1)/v), whose mode is v, and L_KL is the
divergence of Γ(½, 1/(2v)) from the prior Γ(½, ½). Inference is deterministic: v̄ = mean_i v_i is the uncertainty.

Three variants are not the paper's, and serve to measure what the randomness does: the mean loss of several temperatures
per image and step, the temperature fixed at its mean E[t] = Σ_i v_i / (δ − 2), and none at all, where the head learns
from L_KL alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, model_validator
from torch import Tensor

from facerts.losses.face_loss import ArcMarginLoss, ImageTerms, Noise, NonNegative, Outputs, settings
from facerts.losses.log_bounds import LogBounds
from facerts.nn.twin_heads import HeadSpec

# A draw with almost no noise would make the logits explode.
MIN_TEMPERATURE = 1e-4
# Beyond what a run needs: the head starts at 0 ± 1, and since the cross-entropy falls by at most 2γ/v as v grows, the
# loss of an image is lowest at some v ≤ 1 + √(4γ/λ): 6 (z = 1.8) with the paper's settings. Short runs reached a z of
# 4.5 on the way with λ = 10, and 9.7 with λ = 0.1. Small scales need no bound: the divergence is linear in z there, and
# the temperature has a minimum.
LOG_SCALES = LogBounds(-math.inf, 12.0)


def temperature(v: Tensor, noise: Tensor) -> Tensor:
    """t = (1/(δ − 2)) Σ_i v_i ε_i² ``(…)``, from scales ``(…, δ)``, or ``(…, 1)`` if shared, and ε ``(…, δ)``."""
    return (v * noise.square()).sum(dim=-1) / (noise.shape[-1] - 2)


def mean_temperature(v: Tensor, degrees: int) -> Tensor:
    """E[t] = Σ_i v_i / (δ − 2): scales ``(B, δ)``, or ``(B, 1)`` if shared by δ normals, to ``(B,)``."""
    return v.mean(dim=1) * degrees / (degrees - 2)


def gamma_kl(log_scale: Tensor) -> Tensor:
    """(1/δ) Σ_i ½ (v_i − log v_i − 1): the mean divergence of Γ(½, 1/(2v_i)) from the prior Γ(½, ½).

    Log scales z = log v ``(B, δ)`` to ``(B,)``; 0 at z = 0. Source: Shang et al., "Random Temperature Scaling", Eq. 6.
    """
    return 0.5 * (log_scale.exp() - log_scale - 1.0).mean(dim=1)


@settings
class RTS(ArcMarginLoss):
    """ArcFace logits divided by a random temperature with a predicted scale; quality is −log v̄.

    Args:
        kl_weight: λ.
        degrees: δ, degrees of freedom: the number of squared normals that a temperature sums; above 2.
        scale: "vector" predicts δ scales, "shared" a single one.
        temperature: "random" draws it, as the paper does; "mean" fixes it at its mean; "none" leaves the logits as they
            are.
        draws: number of random temperatures of an image in a step; their cross-entropies are averaged.
    """

    name = "rts"
    kl_weight: NonNegative = 10.0
    degrees: Annotated[int, Field(gt=2, le=4096)] = 16
    scale: Literal["vector", "shared"] = "vector"
    temperature: Literal["random", "mean", "none"] = "random"
    draws: Annotated[int, Field(ge=1, le=256)] = 1

    @model_validator(mode="after")
    def draws_are_random(self) -> RTS:
        """Only random temperatures can be drawn several times."""
        if self.draws > 1 and self.temperature != "random":
            raise ValueError(f"draws {self.draws} are of a random temperature; leave them out with {self.temperature}")
        return self

    def heads(self) -> dict[str, HeadSpec]:
        size = self.degrees if self.scale == "vector" else 1
        return {"log_scale": HeadSpec(size, batch_norm=True)}

    def image_terms(self, outputs: Outputs, noise: Noise) -> ImageTerms:
        z = LOG_SCALES(outputs["log_scale"])
        v = z.exp()
        kl = gamma_kl(z)
        terms = ImageTerms(
            outputs["embedding"],
            penalty=self.kl_weight * kl,
            parts={
                "kl": kl.detach().mean(),
                "out_of_bounds": LOG_SCALES.images_outside(outputs["log_scale"]),
            },
            per_image={"v": v.detach().mean(dim=1)},
        )
        if self.temperature == "none":
            return terms
        t = self._temperature(v, noise)
        clamped = (t.detach() < MIN_TEMPERATURE).sum()
        return replace(terms, temperature=t.clamp_min(MIN_TEMPERATURE), parts={**terms.parts, "clamped": clamped})

    def _temperature(self, v: Tensor, noise: Noise) -> Tensor:
        """``(B,)``, or ``(B, K)`` for K draws."""
        degrees, draws = self.degrees, self.draws
        if self.temperature == "mean":
            return mean_temperature(v, degrees)
        epsilon = noise(draws * degrees).to(v)
        if draws == 1:
            return temperature(v, epsilon)
        return temperature(v.unsqueeze(1), epsilon.reshape(len(v), draws, degrees))

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        z = outputs["log_scale"]
        # Compute log v̄ directly: it is finite even where exp(z) overflows.
        log_mean = z.logsumexp(dim=1) - math.log(z.shape[1])
        return self.scored(outputs, quality=-log_mean, uncertainty=log_mean.exp(), log_scale=z)
