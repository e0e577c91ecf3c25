"""A network in training as an embedder, so that validation uses the same code as evaluation."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facerts.embedding.outputs import FaceOutputs
from facerts.training.methods import Method
from facerts.training.nn import FaceNetwork

STANDARD_OUTPUTS = ("embedding", "norm", "quality", "uncertainty")


def to_network_input(crops: Tensor, *, channels_last: bool = True) -> Tensor:
    """``(B, 112, 112, 3) uint8`` RGB to ``(B, 3, 112, 112) float32``, (x − 127.5) / 127.5."""
    images = crops.permute(0, 3, 1, 2).float().sub_(127.5).div_(127.5)
    # The permuted tensor is already in channels-last memory format.
    return images if channels_last else images.contiguous()


class NetworkEmbedder:
    """Embeds crops with a network and the score of its method; see ``embedding.outputs.Embedder``.

    Args:
        network: on any device; each call switches it to evaluation mode and back.
        autocast: dtype of the trunk, or None for that of the weights.
    """

    def __init__(
        self,
        network: FaceNetwork,
        method: Method,
        *,
        name: str = "network",
        autocast: torch.dtype | None = None,
    ) -> None:
        self.name = name
        self.method = method.name
        self.sha256 = ""
        self._network = network
        self._score = method.score
        self._autocast = autocast

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
        return FaceOutputs(**{name: scored[name] for name in STANDARD_OUTPUTS}, extras=extras)
