"""Mean embeddings of the identities as class centers, each image left out of the mean that it is compared with."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.losses.partial_fc import Margin, PartialFC

# A sum of unit embeddings with a smaller norm is a rounding error.
MIN_SUM_NORM = 1e-5


class LeaveOneOutMeans(PartialFC):
    """Mean unit embeddings of the identities, as class centers that are not learned.

    An image is compared with the mean of the *other* images of its identity, because its own contribution would make
    it look easier than a new image of the person. The means are over the original images, ``(N, d)``, even with several
    augmented views, since people are enrolled with original images; every view of an image leaves that image out.
    """

    def __init__(self, unit: Tensor, labels: Tensor, identities: int) -> None:
        super().__init__(identities, unit.shape[1])
        # Sums, from which an image can be subtracted; only their direction matters.
        self.weight = nn.Parameter(unit.new_zeros(self.weight.shape).index_add_(0, labels, unit), False)
        self._left_out: tuple[Tensor, Tensor] | None = None

    def without(self, unit: Tensor, labels: Tensor) -> LeaveOneOutMeans:
        """The centers for images or their views, each left out of its mean; ``unit`` ``(B, d)`` is of the originals."""
        others = self.weight[labels] - unit
        # A person's only image is compared with itself, because there is no other.
        alone = torch.linalg.vector_norm(others, dim=1, keepdim=True) < MIN_SUM_NORM
        centers = copy.copy(self)
        centers._left_out = F.normalize(torch.where(alone, unit, others)), labels.unsqueeze(1)
        return centers

    def forward(self, embedding: Tensor, labels: Tensor, margin: Margin, scale: Tensor) -> Tensor:
        """See ``PartialFC.forward``; the centers are fixed, so only the embeddings get a gradient."""
        with torch.autocast(embedding.device.type, enabled=False):
            cosine, index = self.cosines(embedding), labels.unsqueeze(1)
            target = margin(cosine.gather(1, index).squeeze(1))
            shifted = cosine.scatter(1, index, target.unsqueeze(1))
            draws = scale.reshape(-1, 1) if scale.ndim < 2 else scale
            entropies = [
                F.cross_entropy(shifted * factor.unsqueeze(1), labels, reduction="none")
                for factor in draws.unbind(dim=1)
            ]
            return torch.stack(entropies).mean(dim=0)

    def own_and_nearest(self, embedding: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine to the own mean and maximum cosine to any other."""
        cosine, index = self.cosines(embedding), labels.unsqueeze(1)
        return cosine.gather(1, index).squeeze(1), cosine.scatter(1, index, -2.0).amax(dim=1)

    def own(self, embedding: Tensor, labels: Tensor) -> Tensor:
        """Cosine ``(B,)`` to the own mean alone."""
        if self._left_out is None:
            return (F.normalize(embedding) * F.normalize(self.weight[labels])).sum(dim=1)
        return (F.normalize(embedding) * self._left_out[0]).sum(dim=1)

    def cosines(self, embedding: Tensor) -> Tensor:
        """``(B, C)`` cosines of each embedding to the means of all identities, with the image left out of its own."""
        cosine = super().cosines(embedding)
        if self._left_out is None:
            return cosine
        own, index = self._left_out
        return cosine.scatter_(1, index, (F.normalize(embedding) * own).sum(dim=1, keepdim=True))
