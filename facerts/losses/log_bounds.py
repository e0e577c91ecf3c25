"""Bounds on the logarithms that a network predicts, so that training does not end when their exponentials overflow."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class LogBounds(NamedTuple):
    """An interval for predicted logarithms that no healthy run leaves, and the way back for those outside.

    Inside, the value and its gradient are the formula's. Outside, the loss is the one at the nearer bound, and the
    gradient is its projection: the gradient at that bound where descent leads back inside, and 0 where it would lead
    further out. (The gradient of a plain clamp is always 0 there, so a value that left could never come back; passed
    straight through, it could also drive the value further out.)
    """

    low: float
    high: float

    def __call__(self, log: Tensor) -> Tensor:
        """Logarithms of any shape, moved to the nearer bound; those that are not finite stay as they are."""
        bounded: Tensor = _Bounded.apply(log, self.low, self.high)  # type: ignore[no-untyped-call]
        return bounded

    def images_outside(self, log: Tensor) -> Tensor:
        """Number of rows of ``(B, n)`` with a value outside, to log."""
        return ((log < self.low) | (log > self.high)).any(dim=1).sum()


class _Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(log)
        ctx.bounds = low, high
        # A broken network must still end the run.
        return torch.where(log.isfinite(), log.clamp(low, high), log)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,), (log,), (low, high) = gradients, ctx.saved_tensors, ctx.bounds
        # Descent moves against the gradient.
        outwards = ((log > high) & (gradient < 0)) | ((log < low) & (gradient > 0))
        return gradient.masked_fill(outwards, 0.0), None, None
