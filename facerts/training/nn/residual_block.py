"""Residual units, the parts of a network whose activations may be computed twice in place of being kept.

Chen, Xu, Zhang, Guestrin: "Training Deep Nets with Sublinear Memory Cost", 2016.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


class Unit(nn.Module):
    """One of the units that a trunk is made of; subclasses have ``transform`` for their forward pass.

    Attributes:
        recompute: keep the input alone in training, and compute what is between again in the backward pass.
    """

    recompute = False

    def forward(self, x: Tensor) -> Tensor:
        if not (self.recompute and self.training and torch.is_grad_enabled()):
            return self.transform(x)
        return checkpoint(self.transform, x, use_reentrant=False, context_fn=self._contexts)  # type: ignore[no-any-return]

    def transform(self, x: Tensor) -> Tensor:
        """``(B, C, H, W)`` to the unit's output."""
        raise NotImplementedError

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """What surrounds the first pass, and what the second."""
        return nullcontext(), self._statistics_kept()

    @contextmanager
    def _statistics_kept(self) -> Iterator[None]:
        """BatchNorm has moved its running statistics in the first pass, and moves copies of them in the second."""
        norms = [module for module in self.modules() if isinstance(module, _BatchNorm)]
        own = [dict(norm.named_buffers()) for norm in norms]
        for norm, buffers in zip(norms, own, strict=True):
            norm._buffers.update({name: value.clone() for name, value in buffers.items()})
        try:
            yield
        finally:
            for norm, buffers in zip(norms, own, strict=True):
                norm._buffers.update(buffers)


def recompute_units(network: nn.Module) -> None:
    """Let all of a network's units compute their activations again in place of keeping them."""
    for module in network.modules():
        if isinstance(module, Unit):
            module.recompute = True
