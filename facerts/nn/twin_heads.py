"""Twin heads on a backbone: the embedding, and what a method learns beside it, such as the temperature of RTS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.images import CROP_SIZE


@dataclass(frozen=True)
class HeadSpec:
    """A further output of the network.

    Attributes:
        reads: what it is computed from: the "features" of the trunk, as the embedding is, or the "embedding" before
            normalization. A network whose embedding is dropped has heads on features alone.
        hidden: size of a hidden layer; 0 for none.
    """

    size: int
    batch_norm: bool = False
    hidden: int = 0
    reads: Literal["features", "embedding"] = "features"


class FeatureHead(nn.Sequential):
    """A linear layer, after a hidden layer and before a BatchNorm if the spec says so."""

    def __init__(self, inputs: int, spec: HeadSpec) -> None:
        layers: list[nn.Module] = [nn.Linear(spec.hidden or inputs, spec.size)]
        if spec.hidden:
            layers[:0] = [nn.Linear(inputs, spec.hidden), nn.ReLU()]
        if spec.batch_norm:
            layers.append(nn.BatchNorm1d(spec.size))
        super().__init__(*layers)


class EmbeddingHead(nn.Sequential):
    """A linear layer and a BatchNorm with its scale fixed at 1, as in insightface's arcface_torch.

    Norm-based qualities depend on the fixed scale: with a learned one the network could stretch all norms.
    """

    def __init__(self, features: int, embedding_size: int) -> None:
        norm = nn.BatchNorm1d(embedding_size)
        norm.weight.requires_grad_(False)
        super().__init__(nn.Linear(features, embedding_size), norm)


class EmptyHead(nn.Module):
    """In place of the embedding of a network without one: features to ``(B, 0)``."""

    def forward(self, features: Tensor) -> Tensor:
        return features[:, :0]


class FaceNetwork(nn.Module):
    """A trunk ``(B, 3, S, S) float32`` to ``(B, features)``, and the heads on its features.

    The network resizes its input to S, ``input_size``. An ``embedding_size`` d of 0 means no embedding; ``reads`` is
    what each further head is computed from, see ``HeadSpec``.
    """

    def __init__(
        self,
        trunk: nn.Module,
        features: int,
        embedding_size: int,
        heads: Mapping[str, HeadSpec],
        input_size: int = CROP_SIZE,
    ) -> None:
        super().__init__()
        self.embedding_size, self.input_size = embedding_size, input_size
        self.trunk = trunk
        self.embedding: nn.Module = EmbeddingHead(features, embedding_size) if embedding_size else EmptyHead()
        self.reads = {name: spec.reads for name, spec in heads.items()}
        sizes = {"features": features, "embedding": embedding_size}
        self.heads = nn.ModuleDict({name: FeatureHead(sizes[spec.reads], spec) for name, spec in heads.items()})

    def drop_embedding(self) -> None:
        """Keep only the further heads, none of which may read the embedding."""
        assert "embedding" not in self.reads.values()
        self.embedding, self.embedding_size = EmptyHead(), 0

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """The outputs of all heads, for images ``(B, 3, 112, 112)``, RGB, (x − 127.5) / 127.5.

        They are ``embedding`` ``(B, d)`` before normalization and ``(B, size)`` of each further head, float32.
        """
        if self.input_size != CROP_SIZE:
            size = (self.input_size, self.input_size)
            images = F.interpolate(images, size, mode="bilinear", align_corners=False)
        features = self.trunk(images)
        # Angles and log scales lose too much precision in 16 bits, and the heads are a small part of the computation.
        with torch.autocast(features.device.type, enabled=False):
            features = features.to(next(self.parameters()).dtype)
            inputs = {"features": features, "embedding": self.embedding(features)}
            outputs = {name: head(inputs[self.reads[name]]) for name, head in self.heads.items()}
        return {"embedding": inputs["embedding"], **outputs}
