"""The softmax over all identities, one chunk of classes at a time, with the classes sharded over processes.

With millions of identities a B x C matrix of logits does not fit in memory. Nothing here is larger than B x chunk: the
forward pass accumulates the sum of exponentials chunk by chunk with a running maximum, and the backward pass recomputes
the logits of each chunk. The result is exact, not sampled.

The target class is left out of the sum and its cosine is returned separately, so that any margin can be applied to it
with ordinary tensor operations. With L_i the log-sum-exp of the other classes and s_i the target logit with margin,

    CE_i = log(exp L_i + exp s_i) − s_i.

An image may have several scales, such as those of several draws of a random temperature: the cosines are then computed
once, and a sum and a gradient for each scale.

Each process holds C / R of the centers and B / R of the images (R processes). The forward pass gathers embeddings,
labels and scales, sums over the process's own classes, and reduces the sums over the processes; the backward pass does
the reverse. The gradient is that of the sum of the losses of all processes, as autograd defines it for these
collectives.

The gradient of the centers is as large as the centers. If their update needs nothing else, the gradient of each chunk
is passed to the update as soon as it is computed, and is never stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from facerts.losses.collectives import Processes

# As in torch.nn.functional.normalize.
MIN_NORM = 1e-12


def others_and_own(
    unit: Tensor,
    weight: Tensor,
    rows: Tensor,
    scale: Tensor,
    *,
    chunk: int,
    processes: Processes,
    update: Callable[[slice, Tensor], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """log Σ_j exp(scale · cos θ_j) over all other classes of all processes, and the cosine to the own class.

    ``(B, K)`` and ``(B,)``, both differentiable.

    Args:
        unit: ``(B, d)`` unit embeddings of this process's images.
        weight: ``(C_r, d)`` centers of this process, of any norm.
        rows: ``(R·B,) int64`` row of ``weight`` for each image of all processes; −1 if another process has its class.
        scale: ``(B, K)`` factors on the cosines of an image.
        chunk: classes whose logits are in memory at a time.
        processes: processes that share the classes.
        update: called in the backward pass with rows of ``weight`` and their gradient, which ``weight`` then does not
            get; it may change these rows. None leaves the gradient to autograd.
    """
    others, own = _Softmax.apply(unit, weight, rows, scale, chunk, processes, update)  # type: ignore[no-untyped-call]
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
        update: Callable[[slice, Tensor], None] | None,
    ) -> tuple[Tensor, Tensor]:
        unit, scale = processes.all_gather(unit), processes.all_gather(scale)
        maximum = torch.full_like(scale, -torch.inf)
        total = torch.zeros_like(scale)
        own = torch.zeros_like(scale[:, 0])
        for start in range(0, len(weight), chunk):
            part = Chunk(unit, weight[start : start + chunk], rows - start)
            own += part.own()
            for draw in range(scale.shape[1]):
                logits, before = part.others(scale[:, draw]), maximum[:, draw].clone()
                largest = torch.maximum(before, logits.amax(dim=1))
                # Still −∞ if the only class so far is the image's own.
                finite = largest.masked_fill(largest == -torch.inf, 0.0)
                sums = logits.sub_(finite.unsqueeze(1)).exp_().sum(dim=1)
                total[:, draw] = total[:, draw] * (before - finite).exp() + sums
                maximum[:, draw] = largest
        others = processes.all_reduce_logsumexp(total.log() + maximum.masked_fill(maximum == -torch.inf, 0.0))
        own = processes.all_reduce_sum(own)
        ctx.save_for_backward(unit, weight, rows, scale, others)
        ctx.chunk, ctx.processes, ctx.update = chunk, processes, update
        own_rows = processes.own_rows(len(unit))
        return others[own_rows], own[own_rows]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        unit, weight, rows, scale, others = ctx.saved_tensors
        processes: Processes = ctx.processes
        d_others, d_own = (processes.all_gather(gradient.contiguous()) for gradient in gradients)
        d_unit, d_scale = torch.zeros_like(unit), torch.zeros_like(scale)
        d_weight = torch.empty_like(weight) if ctx.update is None else None
        for start in range(0, len(weight), ctx.chunk):
            chunk_rows = slice(start, min(start + ctx.chunk, len(weight)))
            part = Chunk(unit, weight[chunk_rows], rows - start)
            d_cosine: Tensor | None = None
            for draw in range(scale.shape[1]):
                d_logits = part.others(scale[:, draw]).sub_(others[:, draw : draw + 1]).exp_()
                d_logits.mul_(d_others[:, draw : draw + 1])
                d_scale[:, draw] += torch.einsum("bc,bc->b", d_logits, part.cosine)
                d_logits.mul_(scale[:, draw : draw + 1])
                # A single scale, the usual case, needs no second matrix.
                d_cosine = d_logits if d_cosine is None else d_cosine.add_(d_logits)
            assert d_cosine is not None
            d_part_unit, d_part = part.differentiate(part.with_own(d_cosine, d_own))
            d_unit += d_part_unit
            # The network's gradients are averaged over the processes afterwards; those of the centers are not.
            d_part /= processes.count
            if d_weight is None:
                ctx.update(chunk_rows, d_part)
            else:
                d_weight[chunk_rows] = d_part
        own_rows = processes.own_rows(len(unit))
        d_unit = processes.all_reduce_sum(d_unit)[own_rows]
        d_scale = processes.all_reduce_sum(d_scale)[own_rows]
        return d_unit, d_weight, None, d_scale, None, None, None


class Chunk:
    """Cosines ``(B, c)`` of all images, as unit embeddings ``(B, d)``, to a chunk of the classes, centers ``(c, d)``.

    ``rows`` ``(B,)`` is an image's row of ``weight``, outside of 0 … c − 1 if its class is not in the chunk.
    """

    def __init__(self, unit: Tensor, weight: Tensor, rows: Tensor) -> None:
        self._unit, self._weight = unit, weight
        # Dividing the cosines is cheaper than dividing the centers, because usually B < d.
        self._norm = torch.linalg.vector_norm(weight, dim=1).clamp_min(MIN_NORM)
        self.cosine = F.linear(unit, weight).div_(self._norm)
        self._in_chunk = (rows >= 0) & (rows < len(weight))
        self._index = rows.clamp(0, len(weight) - 1).unsqueeze(1)

    def own(self) -> Tensor:
        """``(B,)`` cosines to the images' own classes; 0 for classes outside the chunk."""
        return self.cosine.gather(1, self._index).squeeze(1) * self._in_chunk

    def others(self, scale: Tensor) -> Tensor:
        """``(B, c)`` logits; −∞ for an image's own class."""
        logits = self.cosine * scale.unsqueeze(1)
        masked = logits.gather(1, self._index).masked_fill(self._in_chunk.unsqueeze(1), -torch.inf)
        return logits.scatter_(1, self._index, masked)

    def with_own(self, values: Tensor, own: Tensor) -> Tensor:
        """``values`` ``(B, c)`` with those of the images' own classes replaced by ``own`` ``(B,)``, in place."""
        replaced = torch.where(self._in_chunk.unsqueeze(1), own.unsqueeze(1), values.gather(1, self._index))
        return values.scatter_(1, self._index, replaced)

    def differentiate(self, d_cosine: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients ``(B, d)`` of the embeddings and ``(c, d)`` of the centers; overwrites ``d_cosine``.

        With the norm |w| of a center and cos = (u · w) / |w|, d cos / dw = u / |w| − cos · w / |w|².
        """
        along = torch.einsum("bc,bc->c", d_cosine, self.cosine) / self._norm.square()
        d_product = d_cosine.div_(self._norm)
        d_weight = (d_product.T @ self._unit).addcmul_(along.unsqueeze(1), self._weight, value=-1)
        return d_product @ self._weight, d_weight
