"""A network in training as an embedder, so that validation uses the same code as evaluation.

if step % 1000 == 0:
    print(verify_while_training(network, "lfw/")["accuracy"])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.datasets import PairBenchmark, open_benchmark
from facerts.embedding.outputs import Embedder, FaceOutputs
from facerts.errors import DataError
from facerts.evaluation.pair_verification import evaluate_verification
from facerts.io.console import warn

STANDARD_OUTPUTS = ("embedding", "norm", "quality", "uncertainty")

Score = Callable[[Any], Mapping[str, Tensor]]


def verify_while_training(network: nn.Module, benchmark: str | Path | PairBenchmark) -> dict[str, float]:
    """How well a network tells the pairs of a benchmark apart: accuracy, AUROC, EER, and FNMR at each FMR.

    Args:
        network: see ``NetworkEmbedder``.
        benchmark: folder with pairs.txt, .bin file, list of pairs, or one that is open already, which saves time.
    """
    if not isinstance(benchmark, PairBenchmark):
        opened = open_benchmark(benchmark)
        if not isinstance(opened, PairBenchmark):
            raise DataError(f"{benchmark}: compares templates, which takes an exported model")
        benchmark = opened
    return measure_pairs(NetworkEmbedder(network), benchmark, flip=False)


def measure_pairs(embedder: Embedder, benchmark: PairBenchmark, *, flip: bool) -> dict[str, float]:
    """See ``verify_while_training``; prints a warning if all pairs have the same similarity."""
    section, arrays = evaluate_verification(embedder, benchmark, flip=flip, progress=False)
    if np.ptp(arrays["scores"]) == 0:
        warn(
            f"{benchmark.name}: the network embeds all images alike, so its training has collapsed; start again with a "
            "lower learning rate, a longer warm-up or a lower weight of the loss's own term"
        )
    numbers = {name.lower(): section.measure(name).value or 0.0 for name in ("accuracy", "AUROC", "EER")}
    for one in section.measures:
        if one.test is not None and one.test.at is not None and one.value is not None:
            numbers[f"fnmr_at_fmr_{one.test.at:g}"] = one.value
    return numbers


def to_network_input(crops: Tensor, *, channels_last: bool = True) -> Tensor:
    """``(B, 112, 112, 3) uint8`` RGB to ``(B, 3, 112, 112) float32``, (x − 127.5) / 127.5."""
    images = crops.permute(0, 3, 1, 2).float().sub_(127.5).div_(127.5)
    # The permuted tensor is already in channels-last memory format.
    return images if channels_last else images.contiguous()


def embedding_and_norm(outputs: Any) -> dict[str, Tensor]:
    """The unit embedding ``(B, d)`` and its norm ``(B,)`` from the outputs of a network.

    They are the embedding, or a mapping or sequence that has it under "embedding" or first.
    """
    if isinstance(outputs, Mapping):
        outputs = outputs["embedding"]
    embedding = outputs if isinstance(outputs, Tensor) else outputs[0]
    return {"embedding": F.normalize(embedding, dim=1), "norm": torch.linalg.vector_norm(embedding, dim=1)}


class NetworkEmbedder:
    """Embeds crops with a network; see ``embedding.outputs.Embedder``.

    Args:
        network: images ``(B, 3, 112, 112)`` in −1 … 1 to what ``score`` takes, on any device; each call switches it to
            evaluation mode and back.
        score: outputs of the network to those of a ``FaceOutputs``, such as a loss's ``score``; None takes the
            embedding alone.
        method: name of the loss.
        autocast: dtype of the trunk, or None for that of the weights.
    """

    def __init__(
        self,
        network: nn.Module,
        score: Score | None = None,
        *,
        name: str = "network",
        method: str = "",
        autocast: torch.dtype | None = None,
    ) -> None:
        self.name, self.method, self.sha256 = name, method, ""
        self._network, self._score, self._autocast = network, score or embedding_and_norm, autocast

    @torch.no_grad()
    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        device = next(self._network.parameters()).device
        training = self._network.training
        self._network.eval()
        try:
            images = to_network_input(torch.from_numpy(np.ascontiguousarray(crops)).to(device))
            with torch.autocast(device.type, dtype=self._autocast, enabled=self._autocast is not None):
                outputs = self._network(images)
            scored = {name: value.float().cpu().numpy() for name, value in self._score(outputs).items()}
        finally:
            self._network.train(training)
        extras = {name: value for name, value in scored.items() if name not in STANDARD_OUTPUTS}
        return FaceOutputs(**{name: scored.get(name) for name in STANDARD_OUTPUTS}, extras=extras)  # type: ignore[arg-type]
