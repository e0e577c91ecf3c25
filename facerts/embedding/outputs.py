"""What an embedder says about crops, whether it runs in ONNX Runtime, in PyTorch or elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float32]
# Crops ``(N, H, W, 3)`` to a score of each, ``(N,)``.
CropScore = Callable[[NDArray[np.uint8]], Scores]


@dataclass(frozen=True, slots=True)
class FaceOutputs:
    """Outputs for N crops, row by row.

    Attributes:
        embedding: ``(N, d) float32``, unit length.
        norm: ``(N,) float32``, length of the embedding before it was normalized; None where the model hides it.
        quality: ``(N,) float32``, higher is better; None where the model has none.
        uncertainty: ``(N,) float32``, the method's own number; None where the model has none.
        extras: further outputs by name, such as ``log_scale`` ``(N, δ)``.
    """

    embedding: NDArray[np.float32]
    norm: NDArray[np.float32] | None = None
    quality: NDArray[np.float32] | None = None
    uncertainty: NDArray[np.float32] | None = None
    extras: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.embedding)

    def take(self, rows: NDArray[np.integer]) -> FaceOutputs:
        """Some of the rows, in the order given; a row may come more than once."""

        def of(values: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
            return None if values is None else values[rows]

        return FaceOutputs(
            self.embedding[rows],
            of(self.norm),
            of(self.quality),
            of(self.uncertainty),
            {name: values[rows] for name, values in self.extras.items()},
        )


class Embedder(Protocol):
    """Crops in, outputs out: what evaluation, scoring and validation during training ask of a model.

    Attributes:
        name: for tables and results.
        method: the training method by its registry name, or "unknown".
        sha256: of the model's file; empty for a network in training.
    """

    name: str
    method: str
    sha256: str

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        """Embed aligned crops.

        Args:
            crops: ``(N, 112, 112, 3) uint8`` RGB, aligned to the ArcFace template; any N.
        """
        ...
