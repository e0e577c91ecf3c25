"""A recognizer and the quality of another file as one embedder, which evaluations measure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from facerts.embedding.onnx_embedder import OnnxQuality
from facerts.embedding.outputs import NOT_A_FACE, Embedder, FaceOutputs
from facerts.hub.find import find_or_pull
from facerts.onnx.providers import Runtime

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class CombinedEmbedder:
    """The embeddings of a recognizer with the quality of another model; see ``Embedder``."""

    recognizer: Embedder
    quality: OnnxQuality

    @property
    def name(self) -> str:
        return f"{self.recognizer.name} with {self.quality.name}"

    @property
    def method(self) -> str:
        return self.recognizer.method

    @property
    def sha256(self) -> str:
        """SHA-256 of the hashes of both files."""
        return hashlib.sha256(f"{self.recognizer.sha256} {self.quality.sha256}".encode()).hexdigest()

    @property
    def identity(self) -> str | None:
        own = getattr(self.recognizer, "identity", None)
        return None if own is None else f"{own}\n{self.quality.identity}"

    @property
    def thread_safe(self) -> bool:
        return getattr(self.recognizer, "thread_safe", False)

    @property
    def without_scores(self) -> Embedder:
        without: Embedder = getattr(self.recognizer, "without_scores", self.recognizer)
        return without

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        """All outputs of the recognizer, but quality, uncertainty and non-faces of the other model."""
        found, scored = self.recognizer(crops), self.quality.outputs(crops)
        extras = {name: values for name, values in found.extras.items() if name != NOT_A_FACE}
        extras |= {name: values for name, values in scored.extras.items() if name == NOT_A_FACE}
        return replace(found, quality=scored.quality, uncertainty=scored.uncertainty, extras=extras)


def with_quality(recognizer: Embedder, quality: str | Path | None, **runtime: Unpack[Runtime]) -> Embedder:
    """A recognizer with the quality of another model, by name or .onnx file; ``runtime`` as for ``OnnxQuality``.

    None, "own" or the recognizer's own file gives the recognizer as it is.
    """
    if quality is None or quality == "own":
        return recognizer
    opened = OnnxQuality(find_or_pull(quality), **runtime)
    return recognizer if opened.sha256 == recognizer.sha256 else CombinedEmbedder(recognizer, opened)
