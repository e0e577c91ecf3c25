"""Losses and speed of a run, aggregated for its log."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from facerts.training.distributed.collectives import Processes
from facerts.training.methods import Loss


class Meter:
    """Aggregates the losses of the steps since the last log line, over all processes."""

    def __init__(self, processes: Processes | None = None) -> None:
        self._processes = processes or Processes()
        self._clear()

    def _clear(self) -> None:
        self._started = time.monotonic()
        self._pauses = 0.0
        self._images = 0
        self._parts: dict[str, list[torch.Tensor]] = defaultdict(list)
        self._per_image: dict[str, list[torch.Tensor]] = defaultdict(list)

    def add(self, loss: Loss, images: int) -> None:
        """Add the loss of a step with this many images; its tensors are on the host."""
        self._images += images
        for name, value in {"loss": loss.total, **loss.parts}.items():
            self._parts[name].append(value)
        for name, value in loss.per_image.items():
            self._per_image[name].append(value)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time spent in the block from the training time."""
        start = time.monotonic()
        yield
        self._pauses += time.monotonic() - start

    def read(self) -> dict[str, float]:
        """The values since the last call: means, sums of integer parts, and percentiles of values per image.

        All processes must call it together.
        """
        seconds = time.monotonic() - self._started - self._pauses
        aggregated: dict[str, float] = {}
        for name, values in self._parts.items():
            stacked = self._gathered(torch.stack(values))
            aggregated[name] = (stacked.mean() if stacked.is_floating_point() else stacked.sum()).item()
        for name, values in self._per_image.items():
            stacked = self._gathered(torch.cat(values).float())
            aggregated[f"{name}_mean"] = stacked.mean().item()
            for percent in (5, 50, 95):
                aggregated[f"{name}_p{percent}"] = stacked.quantile(percent / 100).item()
        aggregated["images_per_second"] = round(self._processes.count * self._images / max(seconds, 1e-9), 2)
        aggregated["seconds"] = round(seconds, 3)
        self._clear()
        return aggregated

    def _gathered(self, values: torch.Tensor) -> torch.Tensor:
        """The values of all processes. As objects, because NCCL sends no tensors of the host."""
        return torch.cat(self._processes.all_gather_object(values))
