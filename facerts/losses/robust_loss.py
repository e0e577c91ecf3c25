"""The robust contrastive loss as a function of its temperature, and the temperature that minimizes it.

Qiu, Guo, Xu, Zhao, Zhang, Yang: "To Cool or not to Cool? Temperature Network Meets Large Foundation Models via
DRO", ICML 2024. For an image with the logit L_+ of its positive and the contrasted logits L_k, k ∈ C:

    f(τ)   = τ log((1/|C|) Σ_k exp((L_k − L_+)/τ)) + τρ,   τ ≥ τ_0 > 0
    f'(τ)  = log((1/|C|) Σ_k exp(L_k/τ)) − Σ_k p_k L_k/τ + ρ,   p = softmax(L/τ)
    f''(τ) = (1/τ) [Σ_k p_k (L_k/τ)² − (Σ_k p_k L_k/τ)²] ≥ 0

It is the dual of the worst-case mean of L_k − L_+ over all weights p on C whose KL divergence from the uniform weights
is at most ρ: f'(τ) = ρ − KL(p ‖ uniform). That divergence decreases in τ from log(|C| / number of maxima) to 0. The
minimum of f is therefore interior for 0 < ρ < log(|C| / number of maxima), and at τ_0 for a larger ρ.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Bisection alone narrows twenty decades of τ to float64 precision in this many steps; Newton needs about ten.
STEPS = 64


def log_denominator(logits: Tensor, positive: Tensor, temperature: Tensor, contrasted: Tensor | None = None) -> Tensor:
    """log((1/|C|) Σ_k exp((L_k − L_+)/τ)) ``(B,)``, so that f(τ) = τ (this + ρ).

    Logits are ``(B, K)``, positives and temperatures ``(B,)``; ``contrasted`` ``(B, K) bool`` is C of each row, at
    least one logit, None for all.
    """
    scaled = (logits - positive.unsqueeze(1)) / temperature.unsqueeze(1)
    if contrasted is None:
        return scaled.logsumexp(dim=1) - math.log(logits.shape[1])
    return scaled.masked_fill(~contrasted, -torch.inf).logsumexp(dim=1) - contrasted.sum(dim=1).to(scaled).log()


def first_derivative(logits: Tensor, temperature: Tensor, rho: float) -> Tensor:
    """f'(τ) from logits ``(B, K)`` and temperatures ``(B,)``, ``(B,)``; the positive cancels out."""
    scaled = logits / temperature.unsqueeze(1)
    log_mean = scaled.logsumexp(dim=1) - math.log(logits.shape[1])
    return log_mean - (scaled.softmax(dim=1) * scaled).sum(dim=1) + rho


def second_derivative(logits: Tensor, temperature: Tensor) -> Tensor:
    """f''(τ), ``(B,)``: the variance of L/τ under p, divided by τ."""
    scaled = logits / temperature.unsqueeze(1)
    p = scaled.softmax(dim=1)
    mean = (p * scaled).sum(dim=1, keepdim=True)
    # Equal to the difference of squares, but without its cancellation.
    return (p * (scaled - mean).square()).sum(dim=1) / temperature


@torch.no_grad()
def newton_temperature(logits: Tensor, rho: float, tau_min: float) -> Tensor:
    """The τ ≥ τ_0 that minimizes f with all logits contrasted, by bracketed Newton iterations on f' in log τ.

    The bracket ends at (max L − mean L)/ρ, since KL(p ‖ uniform) ≤ (max L − mean L)/τ. A step that leaves the bracket,
    or is not at most half as long as the previous one, is replaced by bisection. The positive only shifts f, so it is
    not needed. Logits ``(B, K)`` may have any scale and dtype; ρ > 0, as at 0 the minimum is at infinity; τ_0 > 0. The
    result ``(B,) float64`` is τ_0 where f increases from there on.
    """
    if rho <= 0 or tau_min <= 0:
        raise ValueError(f"rho {rho} and tau_min {tau_min} must be above 0")
    logits = logits.double()
    # f' depends on differences only, which are exact between small numbers.
    logits = logits - logits.amax(dim=1, keepdim=True)
    span = -logits.mean(dim=1)
    low = torch.full_like(span, tau_min).log()
    high = (span / rho).clamp_min(tau_min).log()
    at_minimum = first_derivative(logits, low.exp(), rho) >= 0
    x, last_step = (low + high) / 2, high - low
    best, best_slope = x, torch.full_like(x, torch.inf)
    for _ in range(STEPS):
        tau = x.exp()
        slope = first_derivative(logits, tau, rho)
        # After convergence, steps are rounding errors and may lead away again.
        best = torch.where(slope.abs() < best_slope, x, best)
        best_slope = torch.minimum(slope.abs(), best_slope)
        low, high = torch.where(slope < 0, x, low), torch.where(slope < 0, high, x)
        step = -slope / (tau * second_derivative(logits, tau))
        # Also false where f'' has vanished and the step is NaN.
        good = (x + step >= low) & (x + step <= high) & (step.abs() <= last_step.abs() / 2)
        step = torch.where(good, step, (low + high) / 2 - x)
        x, last_step = x + step, step
    return torch.where(at_minimum, torch.full_like(span, tau_min), best.exp())
