"""The softmax over all identities, a chunk of classes at a time and with classes shared out over processes.

A B x C matrix of logits is what fills the memory where identities go to millions. Nothing here is larger than
B x chunk: forward, the sum of exponentials is gathered chunk by chunk with a running maximum; backward, each chunk's
logits are computed once more. The result is exact, not sampled.

The target's class is left out of the sum and its cosine is given by itself, so that any margin can be put on it by
ordinary means. With L_i the logarithm of the other classes' sum and s_i the target's logit with margin,

    CE_i = log(exp L_i + exp s_i) − s_i.

Each process holds C / R of the centers and B / R of the images (R processes). Embeddings, labels and scales are
gathered; every process sums over its own classes; the sums are joined. Backward it goes the other way round. What comes
out is the gradient of the sum of all processes' losses, as autograd's rules for these collectives have it.

The gradient of the centers is as large as they are. Where their step needs nothing but it, each chunk's is handed on as
soon as it is known, and is never kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from facerts.training.distributed.collectives import Processes

# As in torch.nn.functional.normalize.
SMALLEST_NORM = 1e-12


def others_and_own(
    unit: Tensor,
    weight: Tensor,
    rows: Tensor,
    scale: Tensor,
    *,
    chunk: int,
    processes: Processes,
    step: Callable[[slice, Tensor], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """What a softmax needs of all classes.

    Args:
        unit: ``(B, d)`` embeddings of this process's images, at unit length.
        weight: ``(C_r, d)`` centers of this process, of any length.
        rows: ``(R·B,) int64`` row of ``weight`` that each image of all processes belongs to; −1 where another process
            has it.
        scale: ``(B,)``, multiplies an image's cosines.
        chunk: classes that are looked at together.
        processes: that share the classes.
        step: takes, in the backward pass, some rows of ``weight`` and their gradient, which ``weight`` then does not
            get; it may change these rows. None leaves the gradient to autograd.

    Returns:
        log Σ_j exp(scale · cos θ_j) over all other classes of all processes, and the cosine to the own one: ``(B,)``
        each, both differentiable.
    """
    others, own = _Softmax.apply(unit, weight, rows, scale, chunk, processes, step)  # type: ignore[no-untyped-call]
    return others, own


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        unit: Tensor,
        weight: Tensor,
        rows: Tensor,
        scale: Tensor,
        chunk: int,
        processes: Processes,
        step: Callable[[slice, Tensor], None] | None,
    ) -> tuple[Tensor, Tensor]:
        unit, scale = processes.gather(unit), processes.gather(scale)
        highest = torch.full_like(scale, -torch.inf)
        total = torch.zeros_like(scale)
        own = torch.zeros_like(scale)
        for start in range(0, len(weight), chunk):
            part = Chunk(unit, weight[start : start + chunk], rows - start)
            own += part.own()
            logits = part.others(scale)
            now = torch.maximum(highest, logits.amax(dim=1))
            # Where a process has no other class than the image's own there is nothing to add yet.
            finite = now.masked_fill(now == -torch.inf, 0.0)
            total = total * (highest - finite).exp() + logits.sub_(finite.unsqueeze(1)).exp_().sum(dim=1)
            highest = now
        others = processes.logsumexp(total.log() + highest.masked_fill(highest == -torch.inf, 0.0))
        own = processes.sum(own)
        ctx.save_for_backward(unit, weight, rows, scale, others)
        ctx.chunk, ctx.processes, ctx.step = chunk, processes, step
        mine = processes.share(len(unit))
        return others[mine], own[mine]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        unit, weight, rows, scale, others = ctx.saved_tensors
        processes: Processes = ctx.processes
        to_others, to_own = (processes.gather(gradient.contiguous()) for gradient in gradients)
        of_unit, of_scale = torch.zeros_like(unit), torch.zeros_like(scale)
        of_weight = torch.empty_like(weight) if ctx.step is None else None
        for start in range(0, len(weight), ctx.chunk):
            here = slice(start, min(start + ctx.chunk, len(weight)))
            part = Chunk(unit, weight[here], rows - start)
            share = part.others(scale).sub_(others.unsqueeze(1)).exp_().mul_(to_others.unsqueeze(1))
            of_scale += torch.einsum("bc,bc->b", share, part.cosine)
            here_unit, of_part = part.differentiate(part.with_own(share.mul_(scale.unsqueeze(1)), to_own))
            of_unit += here_unit
            # The network's gradients are averaged over the processes after this; those of the centers are not.
            of_part /= processes.count
            if of_weight is None:
                ctx.step(here, of_part)
            else:
                of_weight[here] = of_part
        mine = processes.share(len(unit))
        return processes.sum(of_unit)[mine], of_weight, None, processes.sum(of_scale)[mine], None, None, None


class Chunk:
    """Cosines of all images to some of the classes.

    Args:
        unit: ``(B, d)``.
        weight: ``(c, d)``.
        rows: ``(B,)`` row of ``weight`` that each image belongs to; outside of 0 … c − 1 where it is of another class.
    """

    def __init__(self, unit: Tensor, weight: Tensor, rows: Tensor) -> None:
        self._unit, self._weight = unit, weight
        # The cosines are divided by it and not the centers, of which each has more numbers than there are images.
        self._length = torch.linalg.vector_norm(weight, dim=1).clamp_min(SMALLEST_NORM)
        self.cosine = F.linear(unit, weight).div_(self._length)
        self._here = (rows >= 0) & (rows < len(weight))
        self._index = rows.clamp(0, len(weight) - 1).unsqueeze(1)

    def own(self) -> Tensor:
        """``(B,)`` cosines to the images' own classes; 0 where they are not among these."""
        return self.cosine.gather(1, self._index).squeeze(1) * self._here

    def others(self, scale: Tensor) -> Tensor:
        """``(B, c)`` logits, −∞ for an image's own class."""
        logits = self.cosine * scale.unsqueeze(1)
        kept = logits.gather(1, self._index).masked_fill(self._here.unsqueeze(1), -torch.inf)
        return logits.scatter_(1, self._index, kept)

    def with_own(self, values: Tensor, own: Tensor) -> Tensor:
        """``values (B, c)`` with those of the images' own classes replaced, in place."""
        kept = torch.where(self._here.unsqueeze(1), own.unsqueeze(1), values.gather(1, self._index))
        return values.scatter_(1, self._index, kept)

    def differentiate(self, of_cosine: Tensor) -> tuple[Tensor, Tensor]:
        """``(B, d)`` gradient of the embeddings and ``(c, d)`` of the centers; that of the cosines is used up.

        With the length |w| of a center and cos = (u · w) / |w|, d cos / dw = u / |w| − cos · w / |w|².
        """
        along = torch.einsum("bc,bc->c", of_cosine, self.cosine) / self._length.square()
        of_product = of_cosine.div_(self._length)
        of_weight = (of_product.T @ self._unit).addcmul_(along.unsqueeze(1), self._weight, value=-1)
        return of_product @ self._weight, of_weight
