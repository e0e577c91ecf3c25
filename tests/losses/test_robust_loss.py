"""The robust loss f(τ), its derivatives, and the temperature that minimizes it."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.nn import functional as F

from facerts.losses.robust_loss import (
    first_derivative,
    log_denominator,
    newton_temperature,
    second_derivative,
)

TAU_MIN = 1e-3


def cosines(rows, columns, seed=0, size=24):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(n, size, generator=generator, dtype=torch.float64) for n in (rows, columns))
    return F.normalize(a) @ F.normalize(b).T


def robust_loss(logits, positive, tau, rho, contrasted=None):
    return tau * (log_denominator(logits, positive, tau, contrasted) + rho)


def test_derivatives_are_those_of_autograd_and_autograds_those_of_the_formula():
    logits, positive = cosines(40, 9), cosines(40, 1, seed=1).squeeze(1)
    tau = torch.logspace(-2.5, 1, 40, dtype=torch.float64).requires_grad_()
    value = robust_loss(logits, positive, tau, 0.8)
    (first,) = torch.autograd.grad(value.sum(), tau, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), tau)
    torch.testing.assert_close(first_derivative(logits, tau, 0.8), first, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(second_derivative(logits, tau), second, rtol=1e-6, atol=1e-9)
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[:, 4] = False
    inputs = tuple(part[20:23].detach().requires_grad_() for part in (logits, positive, tau))
    assert torch.autograd.gradcheck(lambda *parts: robust_loss(*parts, 0.5, mask), inputs)


def hostile():
    torch.manual_seed(3)
    dominating = 0.01 * torch.randn(20, 50, dtype=torch.float64)
    dominating[:, 0] = 1.0
    outlier = torch.randn(20, 50, dtype=torch.float64)
    outlier[:, 0] = 1e4
    return {
        "cosines": cosines(20, 50),
        "cosines of one sign": 0.999 + 1e-3 * cosines(20, 50),
        "scaled": 64 * cosines(20, 50),
        "huge": 1e8 * cosines(20, 50),
        "far from zero": 1e6 + cosines(20, 50),
        "all but equal": 1e-6 * cosines(20, 50),
        "one dominating": dominating,
        "an outlier": outlier,
        "two values": (torch.rand(20, 50) < 0.2).double(),
        "float32": cosines(20, 50).float(),
    }


@pytest.mark.parametrize("kind", hostile())
def test_newton_finds_the_minimum(kind):
    logits = hostile()[kind]
    shifted = logits.double() - logits.double().amax(dim=1, keepdim=True)
    for rho in (1e-3, 0.3, 1.0, 2.0, 3.0, 3.8):
        tau = newton_temperature(logits, rho, TAU_MIN)
        assert tau.dtype == torch.float64
        assert torch.isfinite(tau).all()
        assert (tau >= TAU_MIN).all()
        for row, actual in zip(shifted[:2].numpy(), tau[:2].tolist(), strict=True):

            def value(log_tau, row=row, rho=rho):
                at = math.exp(log_tau)
                return at * float(np.log(np.exp(row / at).mean()) + rho)

            # An independent search over all decades in which the minimum can be.
            bounds = (math.log(TAU_MIN), math.log(1e14))
            searched = minimize_scalar(value, bounds=bounds, method="bounded", options={"xatol": 1e-8})
            minimum = min(searched.fun, value(math.log(TAU_MIN)))
            assert value(math.log(actual)) <= minimum + 1e-9 * max(abs(minimum), 1e-6)
        slope = first_derivative(shifted, tau, rho)
        inside = tau > TAU_MIN
        assert (slope[~inside] >= 0).all()
        assert (slope[inside].abs() < 1e-7).all()


def test_too_large_a_rho_and_equal_logits_put_the_minimum_at_the_smallest_temperature():
    for maxima in (1, 2, 5):
        logits = torch.linspace(-0.9, 0.2, 40, dtype=torch.float64).repeat(3, 1)
        logits[:, :maxima] = 0.5
        edge = math.log(40 / maxima)
        assert (newton_temperature(logits, edge + 1e-12, TAU_MIN) == TAU_MIN).all()
        assert (newton_temperature(logits, edge + 2, TAU_MIN) == TAU_MIN).all()
        assert (newton_temperature(logits, edge - 0.2, TAU_MIN) > TAU_MIN).all()
    for rho in (0.01, 1.0, 9.0):
        for value in (0.0, -0.3, 1e6):
            equal = torch.full((2, 7), value, dtype=torch.float64)
            assert (newton_temperature(equal, rho, TAU_MIN) == TAU_MIN).all()
        assert (newton_temperature(torch.randn(4, 1), rho, TAU_MIN) == TAU_MIN).all()


def test_without_rho_there_is_no_temperature():
    for rho, tau_min in ((0.0, TAU_MIN), (-1.0, TAU_MIN), (1.0, 0.0)):
        with pytest.raises(ValueError, match="above 0"):
            newton_temperature(cosines(2, 3), rho, tau_min)
