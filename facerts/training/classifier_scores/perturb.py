"""A small step of the input towards a higher score, before it is scored: ODIN's, and Generalized ODIN's."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def perturbed(score_of: Callable[[Tensor], Tensor], images: Tensor, epsilon: float) -> Tensor:
    """x̃ = x − ε sign(−∇_x S(x)), which raises the score S most where it can be raised.

    Liang, Li, Srikant: "Enhancing The Reliability of Out-of-distribution Image Detection in Neural Networks", ICLR
    2018, Eq. 2, with S the logarithm of the largest softmax probability; Hsu et al., CVPR 2020, with S their own score.

    Args:
        score_of: ``(B, 3, H, W)`` to ``(B,)``; an image's score may depend on no other's.
        images: as the network takes them.
        epsilon: ε, in the units of the images.

    Returns:
        ``(B, 3, H, W)``, detached; the gradients of parameters stay as they were.
    """
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(score_of(images).sum(), images)
    return images.detach() - epsilon * torch.sign(-gradient)
