"""KL divergences from a prior: the penalties that keep a learned scale or variance from collapsing or running away."""

from __future__ import annotations

from torch import Tensor


def gamma_kl(log_scale: Tensor) -> Tensor:
    """(1/δ) Σ_i ½ (v_i − log v_i − 1): the mean divergence of Γ(½, 1/(2v_i)) from the prior Γ(½, ½).

    Log scales z = log v ``(B, δ)`` to ``(B,)``; 0 at z = 0. Source: Shang et al., "Random Temperature Scaling", Eq. 6.
    """
    return 0.5 * (log_scale.exp() - log_scale - 1.0).mean(dim=1)


def normal_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """mean_l ½ (μ_l² + σ_l² − log σ_l² − 1): the mean divergence of N(μ_l, σ_l²) from the prior N(0, 1).

    μ and log σ² ``(B, d)`` to ``(B,)``; 0 at μ = 0, σ = 1. Source: Chang et al., "Data Uncertainty Learning".
    """
    return 0.5 * (mean.square() + log_variance.exp() - log_variance - 1.0).mean(dim=1)
