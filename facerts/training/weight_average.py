"""The moving average of a network's weights."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn


class WeightAverage:
    """An exponential moving average of weights and buffers, which starts at those after the first step.

    Unlike ``torch.optim.swa_utils.AveragedModel``, an update waits for no device. ``keep`` is the weight of the old
    average in each update; ``module`` is a copy of the network with the averaged weights.
    """

    def __init__(self, network: nn.Module, keep: float) -> None:
        self.module = deepcopy(network).requires_grad_(False)
        self._keep = keep
        self._empty = True

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Move the average towards the network's weights."""
        pairs = list(zip(_tensors(self.module), _tensors(network), strict=True))
        lerped = [pair for pair in pairs if pair[0].is_floating_point() and not self._empty]
        if lerped:
            averages, weights = map(list, zip(*lerped, strict=True))
            torch._foreach_lerp_(averages, weights, 1.0 - self._keep)
        for average, weight in pairs:
            # Counts are not averaged.
            if self._empty or not average.is_floating_point():
                average.copy_(weight)
        self._empty = False

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from the ``module.state_dict()`` of an average that was updated before."""
        self.module.load_state_dict(state)
        self._empty = False


def _tensors(network: nn.Module) -> list[Tensor]:
    return [tensor.detach() for tensor in (*network.parameters(), *network.buffers())]
