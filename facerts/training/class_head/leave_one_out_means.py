"""Identities' means as class centers, without the image that is compared with them."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.training.class_head.centers import ClassCenters
from facerts.training.methods.base import Margin

# Of unit embeddings; what is shorter is rounding.
SMALLEST_SUM = 1e-5


class LeaveOneOutMeans(ClassCenters):
    """Identities' mean unit embeddings as class centers that do not learn.

    An image is compared with the mean of its identity's *other* images: its own part of the mean would make it look
    easier than a new image of the person is. With several views the means are of the images as they are, for that is
    how people are enrolled; each view of an image leaves that image out.

    Args:
        unit: ``(N, d)`` unit embeddings of the images as they are.
        labels: ``(N,) int64``.
        identities: C.
    """

    def __init__(self, unit: Tensor, labels: Tensor, identities: int) -> None:
        super().__init__(identities, unit.shape[1])
        # Sums, of which an image can be taken out again; directions are all that counts.
        self.weight = nn.Parameter(unit.new_zeros(self.weight.shape).index_add_(0, labels, unit), False)
        self._left_out: tuple[Tensor, Tensor] | None = None

    def without(self, unit: Tensor, labels: Tensor) -> LeaveOneOutMeans:
        """The centers for a batch of these images, or of any views of them: each is left out of its own.

        Args:
            unit: ``(B, d)`` unit embeddings of each row's image as it is, as the means have it.
            labels: ``(B,)``.
        """
        others = self.weight[labels] - unit
        # A person's only image has no others; nothing but itself says where the person is.
        alone = torch.linalg.vector_norm(others, dim=1, keepdim=True) < SMALLEST_SUM
        centers = copy.copy(self)
        centers._left_out = F.normalize(torch.where(alone, unit, others)), labels.unsqueeze(1)
        return centers

    def forward(self, embedding: Tensor, labels: Tensor, margin: Margin, scale: Tensor) -> Tensor:
        """See ``ClassCenters``; the centers do not learn, so only the embeddings get a gradient."""
        with torch.autocast(embedding.device.type, enabled=False):
            cosine, index = self.cosines(embedding), labels.unsqueeze(1)
            target = margin(cosine.gather(1, index).squeeze(1))
            logits = cosine.scatter(1, index, target.unsqueeze(1)) * scale.reshape(-1, 1)
            return F.cross_entropy(logits, labels, reduction="none")

    def own_and_nearest(self, embedding: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine to the own mean, and the largest to another; see ``methods.base.Centers``."""
        cosine, index = self.cosines(embedding), labels.unsqueeze(1)
        return cosine.gather(1, index).squeeze(1), cosine.scatter(1, index, -2.0).amax(dim=1)

    def cosines(self, embedding: Tensor) -> Tensor:
        """``(B, C)`` cosine of each embedding to every identity's mean, to its own without it."""
        cosine = super().cosines(embedding)
        if self._left_out is None:
            return cosine
        own, index = self._left_out
        return cosine.scatter_(1, index, (F.normalize(embedding) * own).sum(dim=1, keepdim=True))
