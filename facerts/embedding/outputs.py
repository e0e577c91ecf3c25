"""The interface of all embedders, in ONNX Runtime, PyTorch or elsewhere, and their outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float32]
# From crops ``(N, H, W, 3)`` to scores ``(N,)``.
CropScore = Callable[[NDArray[np.uint8]], Scores]
# The extra of models that separate faces from non-faces, above 0 for the latter.
NOT_A_FACE, COVERED = "not_a_face", "covered"


@dataclass(frozen=True, slots=True)
class FaceOutputs:
    """Outputs for N crops, one row each.

    Attributes:
        embedding: ``(N, d) float32``, unit length; d is 0 if the model gives none.
        norm: ``(N,) float32``, length of the embedding before normalization; None if the model does not output it.
        quality: ``(N,) float32``, higher is better; None if the model has none.
        uncertainty: ``(N,) float32``, as the method defines it; None if the model has none.
        extras: further outputs by name, such as ``log_scale`` ``(N, δ)``.
    """

    embedding: NDArray[np.float32]
    norm: NDArray[np.float32] | None = None
    quality: NDArray[np.float32] | None = None
    uncertainty: NDArray[np.float32] | None = None
    extras: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.embedding)

    @property
    def not_a_face(self) -> NDArray[np.bool_] | None:
        """``(N,)`` whether the model takes each crop for a non-face; None if it does not say."""
        return self._above_0(NOT_A_FACE)

    @property
    def covered(self) -> NDArray[np.bool_] | None:
        """``(N,)`` whether the model sees something that covers each face; None if it does not say."""
        return self._above_0(COVERED)

    def _above_0(self, extra: str) -> NDArray[np.bool_] | None:
        values = self.extras.get(extra)
        return None if values is None else values.reshape(-1) > 0

    def take(self, rows: NDArray[np.integer]) -> FaceOutputs:
        """Select rows in the given order; a row may be repeated."""
        norm, quality, uncertainty = (
            None if values is None else values[rows] for values in (self.norm, self.quality, self.uncertainty)
        )
        extras = {name: values[rows] for name, values in self.extras.items()}
        return FaceOutputs(self.embedding[rows], norm, quality, uncertainty, extras)


class Embedder(Protocol):
    """Crops in, outputs out: the interface that evaluation, scoring and validation during training use.

    Attributes:
        sha256: SHA-256 of the model's file; empty for a network in training.
        identity: optional; everything that the outputs depend on besides the crops. Those of an embedder without one
            are not kept for later.
        without_scores: optional; the same embedder without its scores, for the mirror images of crops.
        thread_safe: optional; whether several threads may call the embedder at a time.
        batch_size: optional; how many crops it wants at a time.
        parallel_batches: optional; how many batches to process at the same time so that all cores are busy.
    """

    @property
    def name(self) -> str: ...

    @property
    def method(self) -> str: ...

    @property
    def sha256(self) -> str: ...

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        """Embed any number of crops ``(N, 112, 112, 3) uint8`` RGB, aligned to the ArcFace template."""
        ...
