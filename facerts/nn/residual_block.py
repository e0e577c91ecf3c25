"""What trunks share: residual blocks whose activations can be recomputed in the backward pass, and the last map.

Chen, Xu, Zhang, Guestrin: "Training Deep Nets with Sublinear Memory Cost", 2016.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

HALVINGS = 4


class ResidualBlock(nn.Module, ABC):
    """Base class of the blocks of a trunk; subclasses implement ``transform`` in place of ``forward``.

    With ``recompute``, training stores only the block's input and recomputes its activations in the backward pass.
    """

    recompute = False

    def forward(self, x: Tensor) -> Tensor:
        if not (self.recompute and self.training and torch.is_grad_enabled()):
            return self.transform(x)
        return checkpoint(self.transform, x, use_reentrant=False, context_fn=self._contexts)  # type: ignore[no-any-return]

    @abstractmethod
    def transform(self, x: Tensor) -> Tensor:
        """The block's output for ``(B, C, H, W)``."""

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Contexts of the forward pass and of the recomputation."""
        return nullcontext(), self._frozen_statistics()

    @contextmanager
    def _frozen_statistics(self) -> Iterator[None]:
        """Let BatchNorm update copies of its running statistics, which the forward pass has already updated."""
        norms = [module for module in self.modules() if isinstance(module, _BatchNorm)]
        own = [dict(norm.named_buffers()) for norm in norms]
        for norm, buffers in zip(norms, own, strict=True):
            norm._buffers.update({name: value.clone() for name, value in buffers.items()})
        try:
            yield
        finally:
            for norm, buffers in zip(norms, own, strict=True):
                norm._buffers.update(buffers)


def recompute_activations(network: nn.Module) -> None:
    """Make all residual blocks of a network recompute their activations in the backward pass."""
    for module in network.modules():
        if isinstance(module, ResidualBlock):
            module.recompute = True


def init_convolutions(network: nn.Module) -> None:
    """Draw the weights of the convolutions as He et al. do (ICCV 2015), for ReLU."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def last_side(input_size: int) -> int:
    """Side of the last map: 7 of 112. A strided convolution with padding rounds up."""
    return math.ceil(input_size / (1 << HALVINGS))
