"""The log of a run: one JSON object per line, the same values for TensorBoard, and how they are aggregated."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter

from facerts.io.files import atomic_write, refuse_link, writing
from facerts.training.distributed.collectives import Processes
from facerts.training.methods import Loss

FILE = "log.jsonl"


class RunLog:
    """Appends to ``log.jsonl`` and to TensorBoard's event files in a run's folder.

    Args:
        resumed_at: step that the run starts from; 0 starts a new log. Lines of later steps, which an interrupted run
            wrote after its last checkpoint, are removed so that no step is logged twice.
    """

    def __init__(self, folder: Path, resumed_at: int) -> None:
        self._path = path = folder / FILE
        self._events = folder / "tensorboard"
        refuse_link(self._events)
        is_there = resumed_at and path.is_file()
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if is_there else []
        # Written anew in any case, so that a link is replaced and not appended to.
        with atomic_write(path, "w") as file:
            file.writelines(f"{line}\n" for line in lines if _before(line, resumed_at))
        with writing(path):
            self._file = path.open("a", encoding="utf-8")
        with writing(self._events):
            self._board = SummaryWriter(str(self._events), purge_step=resumed_at)

    def write(self, kind: str, step: int, **fields: Any) -> None:
        """Log one line; fields that are text group TensorBoard's curves."""
        with writing(self._path):
            self._file.write(json.dumps({"kind": kind, "step": step, **fields}) + "\n")
            self._file.flush()
        group = "/".join([kind, *(value for value in fields.values() if isinstance(value, str))])
        with writing(self._events):
            for name, value in fields.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self._board.add_scalar(f"{group}/{name}", value, step)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with writing(self._events), closing(self._board), writing(self._path), self._file:
            pass


def _before(line: str, step: int) -> bool:
    """Whether a line is complete and its step is at most ``step``."""
    try:
        logged = json.loads(line).get("step", math.inf)
    except (ValueError, RecursionError, AttributeError):  # a line that a killed run did not finish
        return False
    return isinstance(logged, int | float) and logged <= step


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
