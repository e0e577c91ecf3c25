"""Perceptrons on the features of a frozen embedder."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.training.nn import HeadSpec
from facerts.training.nn.twin_heads import FeatureHead

# Dividing a constant feature by its standard deviation would amplify rounding errors.
MIN_DEVIATION = 1e-6
# Keeps the logarithm of a zero norm finite.
MIN_NORM = 1e-6


class QualityHeads(nn.Module):
    """One perceptron with one hidden layer for each head of a method.

    Args:
        embedding: ``(N, d)`` embeddings of the training images before normalization.
        tap: ``(N, f)`` values of the tapped tensor; f may be 0.
        heads: heads of the method, by name.
        hidden: units of each hidden layer.
        norm: use the logarithm of the embedding's norm as a further feature.
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
        self.register_buffer("deviation", features.std(dim=0).clamp_min(MIN_DEVIATION))
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
        """The outputs that a network would have: ``embedding`` unchanged, and ``(B, size)`` of each head."""
        features = (self._features(embedding, tap) - self.mean) / self.deviation
        return {"embedding": embedding, **{name: head(features) for name, head in self.heads.items()}}

    def _features(self, embedding: Tensor, tap: Tensor | None) -> Tensor:
        """``(B, d + f)`` features, or ``(B, d + f + 1)`` with the norm."""
        parts = [F.normalize(embedding)]
        if tap is not None:
            parts.append(tap)
        if self._norm:
            norm: Tensor = torch.linalg.vector_norm(embedding, dim=1, keepdim=True)
            parts.append(norm.clamp_min(MIN_NORM).log())
        return torch.cat(parts, dim=1)
