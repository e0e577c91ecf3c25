"""Perceptrons that read a frozen embedder's features."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.training.nn import HeadSpec
from facerts.training.nn.heads import FeatureHead

# A feature that never changes says nothing; dividing by its deviation would make noise of its rounding.
SMALLEST_DEVIATION = 1e-6
# The logarithm of an embedding of length 0 must be a number.
SMALLEST_NORM = 1e-6


class QualityHeads(nn.Module):
    """A perceptron with one hidden layer for each head of a method.

    Args:
        embedding: ``(N, d)`` of the training images before normalization.
        tap: ``(N, f)`` of theirs.
        heads: what the method asks for.
        hidden: units of each hidden layer.
        norm: whether they read the logarithm of the embedding's length too.

    Attributes:
        sizes: d and f.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        embedding: Tensor,
        tap: Tensor,
        heads: Mapping[str, HeadSpec],
        hidden: int,
        *,
        norm: bool = False,
    ) -> None:
        super().__init__()
        self.sizes = embedding.shape[1], tap.shape[1]
        self._norm = norm
        features = self._features(embedding, tap)
        self.register_buffer("mean", features.mean(dim=0))
        self.register_buffer("deviation", features.std(dim=0).clamp_min(SMALLEST_DEVIATION))
        self.heads = nn.ModuleDict(
            {
                name: nn.Sequential(
                    nn.Linear(features.shape[1], hidden),
                    nn.BatchNorm1d(hidden),
                    nn.ReLU(),
                    FeatureHead(hidden, spec),
                )
                for name, spec in heads.items()
            }
        )

    def forward(self, embedding: Tensor, tap: Tensor | None = None) -> dict[str, Tensor]:
        """``embedding`` as it is, and each head's ``(B, size)``, from what a network of ours would give a method."""
        features = (self._features(embedding, tap) - self.mean) / self.deviation
        return {"embedding": embedding, **{name: head(features) for name, head in self.heads.items()}}

    def _features(self, embedding: Tensor, tap: Tensor | None) -> Tensor:
        """``(B, d + f)``, or one more with the norm."""
        parts = [F.normalize(embedding)]
        if tap is not None:
            parts.append(tap)
        if self._norm:
            length: Tensor = torch.linalg.vector_norm(embedding, dim=1, keepdim=True)
            parts.append(length.clamp_min(SMALLEST_NORM).log())
        return torch.cat(parts, dim=1)
