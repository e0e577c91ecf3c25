"""Input perturbation towards a higher score, as in ODIN and Generalized ODIN."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def perturbed(score_of: Callable[[Tensor], Tensor], images: Tensor, epsilon: float) -> Tensor:
    """x̃ = x − ε sign(−∇_x S(x)), a step that increases the score S.

    Liang, Li, Srikant: "Enhancing The Reliability of Out-of-distribution Image Detection in Neural Networks", ICLR
    2018, Eq. 2, with S the logarithm of the maximum softmax probability; Hsu et al., CVPR 2020, with their own score S.

    Args:
        score_of: maps ``(B, 3, H, W)`` to scores ``(B,)``; the score of an image must not depend on the others.
        images: ``(B, 3, H, W)`` network inputs.
        epsilon: ε, in the units of the images.

    Returns:
        ``(B, 3, H, W)``, detached; the gradients of parameters are not changed.
    """
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(score_of(images).sum(), images)
    return images.detach() - epsilon * torch.sign(-gradient)
