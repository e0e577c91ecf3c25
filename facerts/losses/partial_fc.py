"""Partial FC: class centers sharded over processes, and the softmax over all of them or a sample in each step.

They are the only part of the package that knows all identities. Sampling: An, Deng, Guo, Feng, Zhu, Yang, Liu: "Killing
Two Birds with One Stone: Efficient and Robust Training of Face Recognition CNNs by Partial FC", CVPR 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.sgd import sgd

from facerts.errors import Error
from facerts.losses.chunked_softmax import Chunk, others_and_own
from facerts.losses.collectives import Processes
from facerts.nn.device import to_device

Margin = Callable[[Tensor], Tensor]

# Embeddings of a smaller norm are not normalized to unit length: the gradient of the normalization is unbounded at 0,
# and a single step could destroy the weights. Embeddings of a network in training have far larger norms.
MIN_NORM = 1e-2
# Classes whose logits are in memory at a time.
CHUNK = 16_384
# Rows that are initialized at a time, so that the initial centers do not depend on the number of processes.
INIT_ROWS = 4096


class RowUpdates:
    """SGD updates for a parameter ``(N, …)`` whose full gradient is never stored.

    Learning rate, weight decay and momentum are those of the optimizer, so checkpoints contain them as usual. One of
    its groups has the parameter; the optimizer skips it as long as it has no gradient.
    """

    def __init__(self, optimizer: torch.optim.SGD, parameter: Tensor) -> None:
        self._optimizer = optimizer
        self._parameter = parameter
        (self._group,) = (
            number
            for number, group in enumerate(optimizer.param_groups)
            if any(other is parameter for other in group["params"])
        )
        # Create the buffer now, so that all processes save the same entries, even one that holds no rows.
        self._momentum()

    @torch.no_grad()
    def __call__(self, rows: slice | Tensor, gradient: Tensor) -> None:
        """Update some rows, a slice or ``(n,) int64`` without duplicates, by their gradient ``(n, …)``."""
        group = self._optimizer.param_groups[self._group]
        momentum = self._momentum()
        weight = self._parameter[rows]
        row_momentum = None if momentum is None else momentum[rows]
        sgd(
            [weight],
            [gradient],
            [row_momentum],
            fused=True,
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            lr=group["lr"],
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
        )
        # Indexing with a slice gives a view, which was updated in place; indexing with a tensor gives a copy.
        if isinstance(rows, Tensor):
            self._parameter.index_copy_(0, rows, weight)
            if momentum is not None and row_momentum is not None:
                momentum.index_copy_(0, rows, row_momentum)
        # The fused update bypasses autograd's version counter, by which it detects use of the old values.
        torch.autograd.graph.increment_version(self._parameter)

    def _momentum(self) -> Tensor | None:
        """The optimizer's momentum buffer, which loading a checkpoint may have replaced or removed."""
        if not self._optimizer.param_groups[self._group]["momentum"]:
            return None
        state = self._optimizer.state[self._parameter]
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(self._parameter)
        momentum: Tensor = state["momentum_buffer"]
        return momentum


class PartialFC(nn.Module):
    """One class center per identity, sharded over the processes of the run.

    Args:
        num_classes: C.
        embedding_size: d.
        chunk: classes whose logits are in memory at a time.
        sample: share of its centers that each process uses in a step: those of the batch's identities, and others
            sampled anew in each step; None for all, which is exact.
        seed: seed of the sampling.
        processes: processes that share the centers; each holds a contiguous range of them.

    Attributes:
        classes: classes whose centers this process holds.
        step: step of the run; the sampling depends on it.
        weight: ``(C_r, d)`` centers of this process.
        row_updates: if set, the centers are updated in the backward pass, chunk by chunk, and have no gradient; centers
            that were not sampled are not updated, and keep their momentum.

    The centers are initialized to N(0, 0.01²) and weight-decayed like the other parameters, as in insightface's code.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        *,
        chunk: int = CHUNK,
        sample: float | None = None,
        seed: int = 0,
        processes: Processes | None = None,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.step = 0
        self._used = False
        self.row_updates: RowUpdates | None = None
        self._chunk, self._sample, self._seed = chunk, sample, seed
        self.processes = processes or Processes()
        self.classes = self.processes.own_classes(num_classes)
        self.weight = nn.Parameter(torch.empty(len(self.classes), embedding_size))
        for start in range(0, num_classes, INIT_ROWS):
            stop = min(start + INIT_ROWS, num_classes)
            rows = torch.empty(stop - start, embedding_size).normal_(std=0.01)
            own = range(max(start, self.classes.start), min(stop, self.classes.stop))
            if own:
                target = slice(own.start - self.classes.start, own.stop - self.classes.start)
                self.weight.data[target] = rows[own.start - start : own.stop - start]

    def begin(self, step: int) -> None:
        """Prepare for a step of the run; must be called before each step."""
        self.step = step
        self._used = False

    def forward(self, embedding: Tensor, labels: Tensor, margin: Margin, scale: Tensor) -> Tensor:
        """Softmax cross-entropy ``(B,)`` of each embedding against every class center.

        In float32 (or wider) even under autocast, because margins act on cosines near 1.

        Args:
            embedding: ``(B, d)``, of any norm.
            labels: ``(B,) int64``.
            margin: function applied to the target cosines, ``(B,)`` to ``(B,)``.
            scale: factor on an image's logits: a scalar or ``(B,)``; or ``(B, K)`` for the mean of K cross-entropies.
        """
        self._check_single_use()
        with torch.autocast(embedding.device.type, enabled=False):
            unit = F.normalize(embedding, eps=MIN_NORM)
            # A scalar, or one or several scales per image.
            scale = scale.to(unit).reshape(len(unit), -1) if scale.ndim else scale.to(unit).expand(len(unit), 1)
            rows = self._rows(labels)
            sampled, rows = (None, rows) if self._sample is None else self._sampled(rows, self._sample)
            others, own = others_and_own(
                unit,
                self.weight if sampled is None else self.weight[sampled],
                rows,
                scale,
                chunk=self._chunk,
                processes=self.processes,
                update=self._update_for(sampled),
            )
            # log(exp(others) + exp(target)) − target
            return -F.logsigmoid(margin(own).unsqueeze(1) * scale - others).mean(dim=1)

    def cosines(self, embedding: Tensor) -> Tensor:
        """``(B, C)`` cosines of each embedding to every center, in float32 (or wider) even under autocast."""
        self._check_single_use()
        if self.processes.count > 1:
            raise Error(
                "a method that needs the cosines to all class centers trains in a single process only; start it "
                "without torchrun"
            )
        with torch.autocast(embedding.device.type, enabled=False):
            return F.linear(F.normalize(embedding, eps=MIN_NORM), F.normalize(self.weight))

    @torch.no_grad()
    def own_and_nearest(self, embedding: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine to the own class center and maximum cosine to any other, ``(B,)`` each, without gradient."""
        with torch.autocast(embedding.device.type, enabled=False):
            unit = self.processes.all_gather(F.normalize(embedding, eps=MIN_NORM))
            rows = self._rows(labels)
            own = torch.zeros_like(unit[:, 0])
            nearest = torch.full_like(own, -2.0)
            for start in range(0, len(self.weight), self._chunk):
                part = Chunk(unit, self.weight[start : start + self._chunk], rows - start)
                own += part.own()
                nearest = torch.maximum(nearest, part.others(torch.ones_like(own)).amax(dim=1))
            own_rows = self.processes.own_rows(len(unit))
            return (
                self.processes.all_reduce_sum(own)[own_rows],
                self.processes.all_reduce_max(nearest)[own_rows],
            )

    def own(self, embedding: Tensor, labels: Tensor) -> Tensor:
        """Cosine ``(B,)`` to the own class center alone, without gradient."""
        return self.own_and_nearest(embedding, labels)[0]

    @property
    def is_learned(self) -> bool:
        """Whether training changes the centers."""
        return self.weight.requires_grad

    def _check_single_use(self) -> None:
        if self.row_updates is None or not torch.is_grad_enabled():
            return
        if self._used:
            raise Error(
                "the loss compares with the class centers twice in a step, but they are updated in the backward pass "
                "of the first; derive it from FaceLoss, so that they are updated after the whole backward pass"
            )
        self._used = True

    def _rows(self, labels: Tensor) -> Tensor:
        """``(R·B,)`` row of this process's centers for each image of all processes; −1 if it is in another process."""
        rows = self.processes.all_gather(labels) - self.classes.start
        return rows.masked_fill((rows < 0) | (rows >= len(self.classes)), -1)

    def _update_for(self, sampled: Tensor | None) -> Callable[[slice, Tensor], None] | None:
        """The function that updates some rows of the (sampled) centers from their gradient."""
        update = self.row_updates
        if update is None or sampled is None:
            return update
        return lambda rows, gradient: update(sampled[rows], gradient)

    def _sampled(self, rows: Tensor, share: float) -> tuple[Tensor, Tensor]:
        """The indices of a sample of the centers that includes those in ``rows``, and ``rows`` within the sample."""
        generator = torch.Generator().manual_seed((self._seed << 32) + (self.step << 12) + self.processes.rank)
        order = to_device(torch.rand(len(self.weight) + 1, generator=generator), rows.device)
        # The last entry stands for the rows of −1, those of other processes.
        order[rows] = -1.0
        order = order[:-1]
        # At least two if possible, so that an image's own center has another to be compared with.
        count = max(min(2, len(self.weight)), math.ceil(share * len(self.weight)))
        # Only if the images may have more centers than that, the device must be asked how many.
        if count < len(rows):
            count = max(count, int((order < 0).sum()))
        sampled = order.topk(count, largest=False).indices.sort().values
        index = torch.full((len(self.weight) + 1,), -1, device=rows.device)
        index[sampled] = torch.arange(count, device=rows.device)
        # Rows of −1 read the last entry, which is −1.
        return sampled, index[rows]
