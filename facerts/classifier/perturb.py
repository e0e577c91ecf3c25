"""ODIN's small step of the input towards a surer answer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def perturbed(
    logits_of: Callable[[Tensor], Tensor], images: Tensor, epsilon: float, temperature: float
) -> Tensor:
    """x̃ = x − ε sign(−∇_x log S_ŷ(x; T)), ŷ the surest class and S the softmax of f/T.

    Liang, Li, Srikant: "Enhancing The Reliability of Out-of-distribution Image Detection in Neural Networks", ICLR
    2018, Eq. 2.

    Args:
        logits_of: ``(B, 3, H, W)`` to ``(B, C)``; an image's logits may depend on no other's.
        images: as the network takes them.
        epsilon: ε, in the units of the images.
        temperature: T.

    Returns:
        ``(B, 3, H, W)``, detached; the gradients of parameters stay as they were.
    """
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        surest = (logits_of(images) / temperature).log_softmax(dim=1).max(dim=1).values
        (gradient,) = torch.autograd.grad(surest.sum(), images)
    return images.detach() - epsilon * torch.sign(-gradient)
