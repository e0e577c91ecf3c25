"""The robust contrastive loss as a function of its temperature, and the temperature that minimizes it.

Qiu, Guo, Xu, Zhao, Zhang, Yang: "To Cool or not to Cool? Temperature Network Meets Large Foundation Models via
DRO", ICML 2024. For an image with the logit L_+ of its positive and the contrasted logits L_k, k ∈ C:

    f(τ)   = τ log((1/|C|) Σ_k exp((L_k − L_+)/τ)) + τρ,   τ ≥ τ_0 > 0
    f'(τ)  = log((1/|C|) Σ_k exp(L_k/τ)) − Σ_k p_k L_k/τ + ρ,   p = softmax(L/τ)
    f''(τ) = (1/τ) [Σ_k p_k (L_k/τ)² − (Σ_k p_k L_k/τ)²] ≥ 0

It is the dual of the worst-case mean of L_k − L_+ over all weights p on C whose KL divergence from the uniform weights
is at most ρ: f'(τ) = ρ − KL(p ‖ uniform). That divergence decreases in τ from log(|C| / number of maxima) to 0. The
minimum of f is therefore interior for 0 < ρ < log(|C| / number of maxima), and at τ_0 for a larger ρ. Where it is
interior,

    τ* = (1/ρ) [Σ_k (p_k − 1/|C|) L_k − b],   b = τ* log((1/|C|) Σ_k exp(L_k/τ*)) − (1/|C|) Σ_k L_k

All functions take logits ``(B, K)``, temperatures ``(B,)`` and ``among`` ``(B, K) bool``, which marks the logits that
a row is contrasted with (at least one per row; None for all).
"""

from __future__ import annotations

import torch
from torch import Tensor

# Bisection alone narrows twenty decades of τ to float64 precision in this many steps; Newton needs about ten.
STEPS = 64


def robust_loss(
    logits: Tensor, positive: Tensor, temperature: Tensor, rho: float, among: Tensor | None = None
) -> Tensor:
    """f(τ) ``(B,)``, from logits ``(B, K)``, logits of the positives ``(B,)`` and temperatures ``(B,)``."""
    return temperature * (log_denominator(logits, positive, temperature, among) + rho)


def log_denominator(
    logits: Tensor, positive: Tensor, temperature: Tensor, among: Tensor | None = None
) -> Tensor:
    """log((1/|C|) Σ_k exp((L_k − L_+)/τ)) ``(B,)``; arguments as for ``robust_loss``."""
    log_mean, _, _ = _tilted(logits - positive.unsqueeze(1), temperature, among)
    return log_mean


def first_derivative(logits: Tensor, temperature: Tensor, rho: float, among: Tensor | None = None) -> Tensor:
    """f'(τ), ``(B,)``; the positive cancels out."""
    log_mean, p, scaled = _tilted(logits, temperature, among)
    return log_mean - (p * scaled).sum(dim=1) + rho


def second_derivative(logits: Tensor, temperature: Tensor, among: Tensor | None = None) -> Tensor:
    """f''(τ), ``(B,)``: the variance of L/τ under p, divided by τ."""
    _, p, scaled = _tilted(logits, temperature, among)
    mean = (p * scaled).sum(dim=1, keepdim=True)
    # Equal to the difference of squares, but without its cancellation.
    return (p * (scaled - mean).square()).sum(dim=1) / temperature


def excess(logits: Tensor, temperature: Tensor, among: Tensor | None = None) -> Tensor:
    """b ``(B,)``: the soft maximum τ log mean exp(L/τ) minus the mean, in [0, max L − mean L]."""
    log_mean, _, _ = _tilted(logits, temperature, among)
    return temperature * log_mean - _mean(logits, among)


def fixed_point(logits: Tensor, temperature: Tensor, rho: float, among: Tensor | None = None) -> Tensor:
    """(1/ρ) [Σ_k (p_k − 1/|C|) L_k − b] ``(B,)``, which equals τ at an interior minimum of f."""
    _, p, _ = _tilted(logits, temperature, among)
    raised = (p * logits).sum(dim=1) - _mean(logits, among)
    return (raised - excess(logits, temperature, among)) / rho


@torch.no_grad()
def newton_temperature(logits: Tensor, rho: float, tau_min: float, among: Tensor | None = None) -> Tensor:
    """The τ ≥ τ_0 that minimizes f, by bracketed Newton iterations on f' in log τ.

    The bracket ends at (max L − mean L)/ρ, since KL(p ‖ uniform) ≤ (max L − mean L)/τ. A step that leaves the bracket,
    or is not at most half as long as the previous one, is replaced by bisection. The positive only shifts f, so it is
    not needed.

    Args:
        logits: ``(B, K)``, of any scale and dtype.
        rho: ρ > 0; at 0 the minimum is at infinity.
        tau_min: τ_0 > 0.
        among: see the module docstring.

    Returns:
        ``(B,) float64``; τ_0 where f increases from there on.

    Raises:
        ValueError: rho or tau_min is not above 0.
    """
    if rho <= 0 or tau_min <= 0:
        raise ValueError(f"rho {rho} and tau_min {tau_min} must be above 0")
    logits = logits.double()
    # f' depends on differences only, which are exact between small numbers.
    logits = logits - _maximum(logits, among).unsqueeze(1)
    span = -_mean(logits, among)
    low = torch.full_like(span, tau_min).log()
    high = (span / rho).clamp_min(tau_min).log()
    at_minimum = first_derivative(logits, low.exp(), rho, among) >= 0
    x, last_step = (low + high) / 2, high - low
    best, best_slope = x, torch.full_like(x, torch.inf)
    for _ in range(STEPS):
        tau = x.exp()
        slope = first_derivative(logits, tau, rho, among)
        # After convergence, steps are rounding errors and may lead away again.
        best, best_slope = (
            torch.where(slope.abs() < best_slope, x, best),
            torch.minimum(slope.abs(), best_slope),
        )
        low, high = torch.where(slope < 0, x, low), torch.where(slope < 0, high, x)
        step = -slope / (tau * second_derivative(logits, tau, among))
        # Also false where f'' has vanished and the step is NaN.
        good = (x + step >= low) & (x + step <= high) & (step.abs() <= last_step.abs() / 2)
        step = torch.where(good, step, (low + high) / 2 - x)
        x, last_step = x + step, step
    return torch.where(at_minimum, torch.full_like(span, tau_min), best.exp())


def _tilted(logits: Tensor, temperature: Tensor, among: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """log((1/|C|) Σ_k exp(L_k/τ)) ``(B,)``, and p and L/τ ``(B, K)``, which are 0 outside C."""
    scaled = logits / temperature.unsqueeze(1)
    if among is None:
        log_sum = scaled.logsumexp(dim=1)
        count = torch.full_like(log_sum, logits.shape[1])
        return log_sum - count.log(), scaled.softmax(dim=1), scaled
    inside = scaled.masked_fill(~among, -torch.inf)
    count = among.sum(dim=1).to(logits.dtype)
    return (
        inside.logsumexp(dim=1) - count.log(),
        inside.softmax(dim=1),
        # Not −∞, which times p = 0 would be NaN.
        scaled.masked_fill(~among, 0.0),
    )


def _mean(logits: Tensor, among: Tensor | None) -> Tensor:
    if among is None:
        return logits.mean(dim=1)
    return logits.masked_fill(~among, 0.0).sum(dim=1) / among.sum(dim=1)


def _maximum(logits: Tensor, among: Tensor | None) -> Tensor:
    return (logits if among is None else logits.masked_fill(~among, -torch.inf)).amax(dim=1)
