"""Moving averages of contrastive denominators, one for each image of the data set.

SogCLR: Yuan, Wu, Qiu, Du, Zhang, Zhou, Yang: "Provable Stochastic Optimization for Global Contrastive Learning: Small
Batch Does Not Harm Performance", ICML 2022. With a temperature for each image: Qiu, Hu, Yuan, Zhou, Zhang, Yang: "Not
All Semantics are Created Equal: Contrastive Self-supervised Learning with Automatic Temperature Individualization",
ICML 2023. The denominator of an image over the whole data set is estimated from its batches; for its view v:

    g_v = (1/|C|) Σ_{k∈C} exp((L_k − L_+)/τ),   C in the batch
    u_v = (1 − γ) u + γ g_v,   or g_v in the image's first step
    u   ← mean of u_v over the views
    ∇ log of the denominator ≈ ∇g_v / u_v

With γ = 1 this is the gradient of the batch's own log g_v. All values are kept as logarithms, because (L_k − L_+)/τ
reaches thousands.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

# The logarithm of an image's u before its first step.
UNSEEN = -math.inf


def room_for(samples: Tensor, values: Tensor, initial: float) -> Tensor:
    """A value of each image ``(n,)``, lengthened if need be so that all samples ``(B,) int64`` have a place."""
    missing = int(samples.max()) + 1 - len(values)
    return F.pad(values, (0, missing), value=initial) if missing > 0 else values


def moved(log_averages: Tensor, log_estimates: Tensor, rate: float) -> Tensor:
    """log u_v from log u and log g_v, all of one shape; γ is the rate."""
    keep, add = torch.tensor([1.0 - rate, rate], dtype=torch.float64).log().tolist()
    log_u = torch.logaddexp(log_averages + keep, log_estimates + add)
    return torch.where(log_averages == UNSEEN, log_estimates, log_u)


def with_gradient(log_averages: Tensor, log_estimates: Tensor) -> Tensor:
    """log u_v with the gradient ∇g_v/u_v, from log u_v and from log g_v with its gradient."""
    constant = log_estimates.detach()
    return log_averages + (constant - log_averages).exp() * (log_estimates - constant)
