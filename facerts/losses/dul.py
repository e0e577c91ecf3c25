"""DUL: data uncertainty learning, the classification form.

Chang, Lan, Cheng, Wei: "Data Uncertainty Learning in Face Recognition", CVPR 2020.

An image is a Gaussian in embedding space: the embedding is its mean μ, and a second head predicts log σ². Training
classifies a sample of the Gaussian; its KL divergence from the standard normal keeps σ from collapsing to 0:

    s = μ + ε ⊙ σ,   ε ~ N(0, I)                                              one sample per image and step
    L = CE(s) + λ L_KL                                                        CE on the ArcFace logits of s
    L_KL = mean_l ½ (μ_l² + σ_l² − log σ_l² − 1)

The divergence is the mean over the d dimensions, as in the authors' code; with a sum, λ would be d times as large.
Inference is deterministic: the embedding is μ, and the uncertainty is the harmonic mean of σ².
"""

from __future__ import annotations

from torch import Tensor

from facerts.losses.face_loss import ArcMarginLoss, ImageTerms, Noise, NonNegative, Outputs, settings
from facerts.losses.pfe import LOG_VARIANCES, harmonic_mean
from facerts.nn.twin_heads import HeadSpec


def normal_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """mean_l ½ (μ_l² + σ_l² − log σ_l² − 1): the mean divergence of N(μ_l, σ_l²) from the prior N(0, 1).

    μ and log σ² ``(B, d)`` to ``(B,)``; 0 at μ = 0, σ = 1. Source: Chang et al., "Data Uncertainty Learning".
    """
    return 0.5 * (mean.square() + log_variance.exp() - log_variance - 1.0).mean(dim=1)


@settings
class DUL(ArcMarginLoss):
    """ArcFace on samples from Gaussian embeddings; quality is minus the harmonic mean of σ².

    Args:
        kl_weight: λ.
    """

    name = "dul"
    kl_weight: NonNegative = 0.01

    def heads(self) -> dict[str, HeadSpec]:
        # Without BatchNorm, log σ² hits its bound within a few steps.
        return {"log_variance": HeadSpec(self.embedding_size, batch_norm=True)}

    def image_terms(self, outputs: Outputs, noise: Noise) -> ImageTerms:
        mean, log_variance = outputs["embedding"], LOG_VARIANCES(outputs["log_variance"])
        kl = normal_kl(mean, log_variance)
        return ImageTerms(
            mean + noise(self.embedding_size).to(mean) * (0.5 * log_variance).exp(),
            penalty=self.kl_weight * kl,
            parts={
                "kl": kl.detach().mean(),
                "out_of_bounds": LOG_VARIANCES.images_outside(outputs["log_variance"]),
            },
            per_image={"variance": harmonic_mean(log_variance.detach().exp())},
        )

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        variance = outputs["log_variance"].clamp(*LOG_VARIANCES).exp()
        uncertainty = harmonic_mean(variance)
        return self.scored(outputs, quality=-uncertainty, uncertainty=uncertainty, variance=variance)
