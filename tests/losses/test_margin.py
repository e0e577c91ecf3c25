"""Margins on the target cosine."""

import math

import numpy as np
import pytest
import torch

from facerts.losses.margin import additive_angular, clamped_angular

MARGIN = 0.5


def test_past_the_end_of_the_angle_the_fallback_takes_over():
    angle = torch.tensor([math.pi - 0.5 + 1e-6, math.pi], dtype=torch.float64)
    np.testing.assert_allclose(
        additive_angular(angle.cos(), MARGIN), angle.cos() - MARGIN * math.sin(MARGIN), atol=1e-12
    )


@pytest.mark.parametrize(
    ("function", "shift"),
    [(additive_angular, MARGIN), *((clamped_angular, shift) for shift in (-0.4, 0.0, 0.4))],
)
def test_the_gradient_is_that_of_the_formula(function, shift):
    angle = torch.linspace(1e-3, math.pi - 1e-3, 400, dtype=torch.float64)
    ends = torch.minimum((angle + shift).abs(), (angle + shift - math.pi).abs())
    angle = angle[ends > 1e-2].requires_grad_()
    shifts = torch.full_like(angle, shift, requires_grad=False)
    assert torch.autograd.gradcheck(lambda theta: function(theta.cos(), shifts), angle, eps=1e-7)
    (slope,) = torch.autograd.grad(function(angle.cos(), shifts).sum(), angle)
    shifted = angle.detach() + shift
    inside = (shifted > 0) & (shifted < math.pi)
    beyond = -angle.detach().sin() if function is additive_angular else torch.zeros_like(shifted)
    torch.testing.assert_close(slope, torch.where(inside, -shifted.sin(), beyond), rtol=1e-5, atol=1e-7)
    assert inside.all() == (shift == 0)


@pytest.mark.parametrize("gradient", ["exact", "straight"])
@pytest.mark.parametrize("shift", [-0.4, -0.2, 0.0, 0.2, 0.4])
def test_the_clamped_angle_is_the_arccosine_clamped(shift, gradient):
    angle = torch.linspace(1e-4, math.pi - 1e-4, 4001, dtype=torch.float64)
    expected = torch.cos((angle + shift).clamp(0, math.pi))
    actual = clamped_angular(angle.cos(), torch.full_like(angle, shift), gradient)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)


def test_the_straight_gradient_is_one_in_the_cosine_and_the_value_is_the_same():
    cosine = torch.linspace(-0.99, 0.99, 101, dtype=torch.float64, requires_grad=True)
    straight = additive_angular(cosine, MARGIN, "straight")
    exact = additive_angular(cosine.detach(), MARGIN)
    np.testing.assert_allclose(straight.detach(), exact, rtol=0, atol=1e-15)
    for value in (straight, clamped_angular(cosine, torch.full_like(cosine, -0.4), "straight")):
        (slope,) = torch.autograd.grad(value.sum(), cosine)
        assert torch.equal(slope, torch.ones_like(slope))


@pytest.mark.parametrize("gradient", ["exact", "straight"])
def test_a_learned_margin_gets_its_gradient_in_both_modes(gradient):
    margin = torch.tensor([0.2, 0.7], dtype=torch.float64, requires_grad=True)
    angle = torch.tensor([0.4, 1.1], dtype=torch.float64)
    (slope,) = torch.autograd.grad(additive_angular(angle.cos(), margin, gradient).sum(), margin)
    np.testing.assert_allclose(slope, -torch.sin(angle + margin.detach()), rtol=1e-7)


def test_a_margin_of_lower_precision_does_not_lower_that_of_the_logit():
    cosine = torch.tensor([0.9, 0.1, -0.3])
    margin = torch.tensor([0.25, 0.5, 1.0], dtype=torch.bfloat16)
    assert torch.equal(additive_angular(cosine, margin), additive_angular(cosine, margin.float()))
