"""The robust contrastive loss as a function of its temperature, and the temperature that makes it least.

Qiu, Guo, Xu, Zhao, Zhang, Yang: "To Cool or not to Cool? Temperature Network Meets Large Foundation Models via
DRO", ICML 2024. An image with the logit L_+ of its positive and the logits L_k, k ∈ C, that it is contrasted with has

    f(τ)   = τ log((1/|C|) Σ_k exp((L_k − L_+)/τ)) + τρ,   τ ≥ τ_0 > 0
    f'(τ)  = log((1/|C|) Σ_k exp(L_k/τ)) − Σ_k p_k L_k/τ + ρ,   p = softmax(L/τ)
    f''(τ) = (1/τ) [Σ_k p_k (L_k/τ)² − (Σ_k p_k L_k/τ)²] ≥ 0

It is the dual of the worst mean of L_k − L_+ over all weights p of C whose divergence from the uniform ones is at most
ρ: f'(τ) = ρ − KL(p ‖ uniform). That divergence falls in τ from log(|C| / number of maxima) to 0, so that f has its
minimum inside for 0 < ρ < log(|C| / number of maxima); for a larger ρ it is at τ_0. There

    τ* = (1/ρ) [Σ_k (p_k − 1/|C|) L_k − b],   b = τ* log((1/|C|) Σ_k exp(L_k/τ*)) − (1/|C|) Σ_k L_k

In every function logits are ``(B, K)``, temperatures ``(B,)``, and ``among`` ``(B, K) bool`` says which logits a row
is contrasted with, at least one; None for all.
"""

from __future__ import annotations

import torch
from torch import Tensor

# As many halvings as take a bracket of twenty decades of τ to what float64 resolves; Newton needs about ten.
STEPS = 64


def robust_loss(
    logits: Tensor, positive: Tensor, temperature: Tensor, rho: float, among: Tensor | None = None
) -> Tensor:
    """f(τ): ``(B, K)`` logits, ``(B,)`` logits of the positives and ``(B,)`` temperatures to ``(B,)``."""
    log_mean, _, _ = _tilted(logits - positive.unsqueeze(1), temperature, among)
    return temperature * (log_mean + rho)


def first_derivative(logits: Tensor, temperature: Tensor, rho: float, among: Tensor | None = None) -> Tensor:
    """f'(τ), ``(B,)``; the positive drops out of it."""
    log_mean, p, scaled = _tilted(logits, temperature, among)
    return log_mean - (p * scaled).sum(dim=1) + rho


def second_derivative(logits: Tensor, temperature: Tensor, among: Tensor | None = None) -> Tensor:
    """f''(τ), ``(B,)``: the variance of L/τ under p, over τ."""
    _, p, scaled = _tilted(logits, temperature, among)
    mean = (p * scaled).sum(dim=1, keepdim=True)
    # The same as the difference of squares, which would cancel.
    return (p * (scaled - mean).square()).sum(dim=1) / temperature


def excess(logits: Tensor, temperature: Tensor, among: Tensor | None = None) -> Tensor:
    """b: how far the soft maximum τ log mean exp(L/τ) lies above the mean, in [0, max L − mean L]; ``(B,)``."""
    log_mean, _, _ = _tilted(logits, temperature, among)
    return temperature * log_mean - _mean(logits, among)


def fixed_point(logits: Tensor, temperature: Tensor, rho: float, among: Tensor | None = None) -> Tensor:
    """(1/ρ) [Σ_k (p_k − 1/|C|) L_k − b]: an interior minimum of f is where it equals τ; ``(B,)``."""
    _, p, _ = _tilted(logits, temperature, among)
    raised = (p * logits).sum(dim=1) - _mean(logits, among)
    return (raised - excess(logits, temperature, among)) / rho


@torch.no_grad()
def newton_temperature(logits: Tensor, rho: float, floor: float, among: Tensor | None = None) -> Tensor:
    """The τ ≥ τ_0 at which f is least, by Newton's method on f' in log τ, kept in a bracket.

    The bracket ends at (max L − mean L)/ρ, since KL(p ‖ uniform) ≤ (max L − mean L)/τ. A step that leaves the
    bracket, or does not halve the one before, is replaced by bisection. The positive does not matter: it only shifts f.

    Args:
        logits: ``(B, K)``, of any size and dtype.
        rho: ρ > 0; at 0 the minimum lies at infinity.
        floor: τ_0 > 0.
        among: see the module.

    Returns:
        ``(B,) float64``; τ_0 where f rises from there on.
    """
    if rho <= 0 or floor <= 0:
        raise ValueError(f"rho {rho} and floor {floor} must be above 0")
    logits = logits.double()
    # f' knows differences alone; small numbers keep them exact.
    logits = logits - _maximum(logits, among).unsqueeze(1)
    span = -_mean(logits, among)
    low = torch.full_like(span, floor).log()
    high = (span / rho).clamp_min(floor).log()
    at_floor = first_derivative(logits, low.exp(), rho, among) >= 0
    x, before = (low + high) / 2, high - low
    best, least = x, torch.full_like(x, torch.inf)
    for _ in range(STEPS):
        tau = x.exp()
        slope = first_derivative(logits, tau, rho, among)
        # Once converged, steps are round-off and may lead away again.
        best, least = torch.where(slope.abs() < least, x, best), torch.minimum(slope.abs(), least)
        low, high = torch.where(slope < 0, x, low), torch.where(slope < 0, high, x)
        step = -slope / (tau * second_derivative(logits, tau, among))
        # False, too, where f'' has vanished and the step is not a number.
        good = (x + step >= low) & (x + step <= high) & (step.abs() <= before.abs() / 2)
        step = torch.where(good, step, (low + high) / 2 - x)
        x, before = x + step, step
    return torch.where(at_floor, torch.full_like(span, floor), best.exp())


def _tilted(logits: Tensor, temperature: Tensor, among: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """log((1/|C|) Σ_k exp(L_k/τ)) ``(B,)``, p and L/τ ``(B, K)``, both 0 outside C."""
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
        # Not minus infinity, which times p = 0 would be no number.
        scaled.masked_fill(~among, 0.0),
    )


def _mean(logits: Tensor, among: Tensor | None) -> Tensor:
    if among is None:
        return logits.mean(dim=1)
    return logits.masked_fill(~among, 0.0).sum(dim=1) / among.sum(dim=1)


def _maximum(logits: Tensor, among: Tensor | None) -> Tensor:
    return (logits if among is None else logits.masked_fill(~among, -torch.inf)).amax(dim=1)
