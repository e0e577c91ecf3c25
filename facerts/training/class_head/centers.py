"""Class centers and the softmax over them: the one place that knows all identities."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.errors import Error
from facerts.training.class_head.chunked_softmax import Chunk, others_and_own
from facerts.training.class_head.row_updates import RowSteps
from facerts.training.distributed.collectives import Processes
from facerts.training.methods.base import Margin

# Shorter embeddings are not brought to unit length: at length 0 the gradient of that is without bound, and one step
# would throw the weights so far that nothing brings them back. Those of a network in training are longer by far.
SMALLEST_LENGTH = 1e-2
# Classes whose logits are held at a time.
CHUNK = 16_384
# Rows that are drawn at a time, so that the centers begin alike whatever the number of processes.
DRAWN = 4096


class ClassCenters(nn.Module):
    """One unit class center per identity, shared out over the processes of the run.

    Args:
        identities: C.
        embedding_size: d.
        chunk: classes whose logits are held at a time.
        sample: share of its centers that each process looks at in a step, those of the batch's people and others drawn
            anew each time (An et al., "Killing Two Birds with One Stone: Efficient and Robust Training of Face
            Recognition CNNs by Partial FC", CVPR 2022); None for all, which is exact.
        seed: of the draws.
        processes: that share the centers; each holds a run of them.

    Attributes:
        identities: C.
        classes: those that this process holds.
        step: of the run, which the draws depend on.
        weight: ``(C_r, d)`` theirs.
        row_steps: where set, the centers step in the backward pass, chunk by chunk, and have no gradient; those that
            were not drawn then stay where they are, with their momentum.

    The centers start as N(0, 0.01²) and are weight-decayed like the rest, as in the field's code.
    """

    def __init__(
        self,
        identities: int,
        embedding_size: int,
        *,
        chunk: int = CHUNK,
        sample: float | None = None,
        seed: int = 0,
        processes: Processes | None = None,
    ) -> None:
        super().__init__()
        self.identities = identities
        self.step = 0
        self._compared = False
        self.row_steps: RowSteps | None = None
        self._chunk, self._sample, self._seed = chunk, sample, seed
        self._processes = processes or Processes()
        self.classes = self._processes.classes(identities)
        self.weight = nn.Parameter(torch.empty(len(self.classes), embedding_size))
        for start in range(0, identities, DRAWN):
            drawn = range(start, min(start + DRAWN, identities))
            rows = torch.empty(len(drawn), embedding_size).normal_(std=0.01)
            kept = range(max(drawn.start, self.classes.start), min(drawn.stop, self.classes.stop))
            if kept:
                place = slice(kept.start - self.classes.start, kept.stop - self.classes.start)
                self.weight.data[place] = rows[kept.start - start : kept.stop - start]

    def begin(self, step: int) -> None:
        """Called before each step of the run."""
        self.step = step
        self._compared = False

    def forward(self, embedding: Tensor, labels: Tensor, margin: Margin, scale: Tensor) -> Tensor:
        """Softmax cross-entropy of each embedding against every center; see ``methods.base.Centers``.

        In float32 (or wider) even under autocast: cosines near 1 are where margins act.

        Raises:
            Error: a second time in a step in whose backward pass the centers step.
        """
        self._may_be_compared()
        with torch.autocast(embedding.device.type, enabled=False):
            unit = F.normalize(embedding, eps=SMALLEST_LENGTH)
            # A scalar or one scale per image.
            scale = scale.to(unit).expand(len(unit))
            rows = self._rows(labels)
            drawn, rows = (None, rows) if self._sample is None else self._drawn(rows, self._sample)
            others, own = others_and_own(
                unit,
                self.weight if drawn is None else self.weight[drawn],
                rows,
                scale,
                chunk=self._chunk,
                processes=self._processes,
                step=self._step_for(drawn),
            )
            # log(exp(others) + exp(target)) − target
            return -F.logsigmoid(margin(own) * scale - others)

    def cosines(self, embedding: Tensor) -> Tensor:
        """``(B, C)`` cosine of each embedding to every center, in float32 (or wider) even under autocast.

        Raises:
            Error: the centers are shared out, or were compared in this step, in whose backward pass they step.
        """
        self._may_be_compared()
        if self._processes.count > 1:
            raise Error("a method that looks at all cosines runs in one process; train it without torchrun")
        with torch.autocast(embedding.device.type, enabled=False):
            return F.linear(F.normalize(embedding, eps=SMALLEST_LENGTH), F.normalize(self.weight))

    @torch.no_grad()
    def own_and_nearest(self, embedding: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine to the own center, and the largest to another; see ``methods.base.Centers``."""
        with torch.autocast(embedding.device.type, enabled=False):
            unit = self._processes.gather(F.normalize(embedding, eps=SMALLEST_LENGTH))
            rows = self._rows(labels)
            own = torch.zeros_like(unit[:, 0])
            nearest = torch.full_like(own, -2.0)
            for start in range(0, len(self.weight), self._chunk):
                part = Chunk(unit, self.weight[start : start + self._chunk], rows - start)
                own += part.own()
                nearest = torch.maximum(nearest, part.others(torch.ones_like(own)).amax(dim=1))
            mine = self._processes.share(len(unit))
            return self._processes.sum(own)[mine], self._processes.highest(nearest)[mine]

    def _may_be_compared(self) -> None:
        if self.row_steps is None or not torch.is_grad_enabled():
            return
        if self._compared:
            raise Error(
                "the method compares with the class centers twice in a step, and they step in the backward pass of the "
                "first; set optim.clip_norm, with which they step when all gradients are known"
            )
        self._compared = True

    def _rows(self, labels: Tensor) -> Tensor:
        """``(R·B,)`` rows of this process's centers that the images of all processes belong to; −1 for others."""
        rows = self._processes.gather(labels) - self.classes.start
        return rows.masked_fill((rows < 0) | (rows >= len(self.classes)), -1)

    def _step_for(self, drawn: Tensor | None) -> Callable[[slice, Tensor], None] | None:
        """What takes the gradient of some of the centers that were looked at."""
        steps = self.row_steps
        if steps is None or drawn is None:
            return steps
        return lambda rows, gradient: steps(drawn[rows], gradient)

    def _drawn(self, rows: Tensor, share: float) -> tuple[Tensor, Tensor]:
        """Which of the centers to look at, the batch's own among them, and the rows as numbered among these."""
        generator = torch.Generator().manual_seed(
            (self._seed << 32) + (self.step << 12) + self._processes.rank
        )
        order = torch.rand(len(self.weight), generator=generator).to(rows.device)
        order[rows[rows >= 0]] = -1.0
        # Beside an image's own there is another, where there are two.
        least = min(2, len(self.weight))
        count = max(least, math.ceil(share * len(self.weight)), int((order < 0).sum()))
        drawn = order.topk(count, largest=False).indices.sort().values
        place = torch.full((len(self.weight) + 1,), -1, device=rows.device)
        place[drawn] = torch.arange(count, device=rows.device)
        # The last entry is where −1 leads.
        return drawn, place[rows]
