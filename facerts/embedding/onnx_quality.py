"""Quality of crops from an ONNX model: one that gives quality alone, or an embedder that has a quality too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.embedding.onnx_embedder import Floats, OnnxModel
from facerts.errors import ModelError
from facerts.onnx.contract import Description


class OnnxQuality(OnnxModel):
    """Crops to quality through a described ONNX model. May be shared by threads."""

    def __call__(self, crops: NDArray[np.uint8]) -> Floats:
        """Quality of aligned crops.

        Args:
            crops: ``(N, 112, 112, 3) uint8`` RGB.

        Returns:
            ``(N,) float32``, higher is better.

        Raises:
            ModelError: as ``OnnxModel.tensors``.
        """
        quality = self.quality_of(self.tensors(crops))
        assert quality is not None  # of which the description was checked
        return quality

    def _check_description(self) -> None:
        if self.description.quality != "norm" and not self.description.gives_quality_output:
            raise ModelError(
                f'{self._path}: the model gives no quality; its description names none ("quality": '
                '"output:TENSOR" or "norm")'
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

    Args:
        path: the .onnx file.
        description: of the model, in place of the one that it carries or has beside it.
        providers: ONNX Runtime's execution providers by name, in order of preference; None for the CPU.
        threads: of one call; None leaves ONNX Runtime's choice.
        batch_size: crops per forward pass, where the model takes any number.

    Raises:
        ModelError: no such file, not an ONNX model, not as described, or it gives no quality.
    """
    return OnnxQuality(
        path, description=description, providers=providers, threads=threads, batch_size=batch_size
    )
