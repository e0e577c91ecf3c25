"""Quality of crops from an ONNX model: a quality-only model, or an embedder with a quality."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.embedding.onnx_embedder import Floats, OnnxModel
from facerts.errors import ModelError
from facerts.onnx.contract import Description


class OnnxQuality(OnnxModel):
    """Quality of crops from a described ONNX model. May be shared by threads."""

    def __call__(self, crops: NDArray[np.uint8]) -> Floats:
        """Quality of aligned crops.

        Args:
            crops: ``(N, 112, 112, 3) uint8`` RGB.

        Returns:
            ``(N,) float32``, higher is better.

        Raises:
            ModelError: as for ``OnnxModel.tensors``.
        """
        quality = self.quality_of(self.tensors(crops))
        assert quality is not None  # checked by _check_description
        return quality

    def _check_description(self) -> None:
        if self.description.quality != "norm" and not self.description.gives_quality_output:
            raise ModelError(
                f'{self.path}: the model has no quality; its description must say "quality": "output:TENSOR" or "norm"'
            )


def load_quality(
    path: str | Path,
    *,
    description: Description | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    batch_size: int = 64,
) -> OnnxQuality:
    """Open an ONNX model for its quality.

    Raises:
        ModelError: the file does not exist, is not an ONNX model, does not match its description, or has no quality.
    """
    return OnnxQuality(
        path, description=description, providers=providers, threads=threads, batch_size=batch_size
    )
