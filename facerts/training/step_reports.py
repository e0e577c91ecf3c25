"""What training steps report: their losses, which stay on the device until some are read together.

To read a number, the host must wait until the device has done all work that was queued before. A GPU then has nothing
to do until the host has queued more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from facerts.errors import NonFiniteLossError
from facerts.losses import LossValue
from facerts.losses.collectives import Processes

# Steps whose reports are read together. The host is at most so many steps ahead of the device.
GROUP = 10


@dataclass(frozen=True)
class StepReport:
    """What a step reports: its number from 0, and its detached loss in this process."""

    step: int
    learning_rate: float
    ramp: float
    loss: LossValue

    def mapped(self, change: Callable[[Tensor], Tensor]) -> StepReport:
        """The same report with all of its tensors changed, one after the other."""
        parts, per_image = (
            {name: change(value) for name, value in values.items()}
            for values in (self.loss.parts, self.loss.per_image)
        )
        return replace(self, loss=LossValue(change(self.loss.total), parts, per_image))

    def cause(self) -> str:
        """Where the loss stopped being finite, and what to do."""
        parts = ", ".join(f"{name} {value.item():.4g}" for name, value in self.loss.parts.items())
        return (
            f"the loss is {self.loss.total.item()} at step {self.step}: {parts}; learning rate "
            f"{self.learning_rate:g}, margin ramp {self.ramp:.2f}. Lower optim.lr, set optim.clip_norm, or use bf16 "
            "instead of fp16; --resume continues from the last checkpoint"
        )


class StepReports:
    """The reports of the last steps; all processes of the run add and take theirs at the same steps."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._pending: list[StepReport] = []

    def add(self, report: StepReport) -> None:
        """Add the report of a step."""
        self._pending.append(report)

    def take(self, *, wait: bool = False) -> list[StepReport]:
        """The reports since the last call, in order, once there are ``GROUP``, or if told to wait.

        Raises:
            NonFiniteLossError: the loss of a step was not finite, in this process or another.
        """
        if not self._pending or (not wait and len(self._pending) < GROUP):
            return []
        reports, self._pending = _on_host(self._pending), []
        causes = self._processes.all_gather_object(
            next((report.cause() for report in reports if not report.loss.total.isfinite()), None)
        )
        several = len(causes) > 1
        if stated := [f"process {n}: {text}" if several else text for n, text in enumerate(causes) if text]:
            raise NonFiniteLossError("; ".join(stated))
        return reports


def _on_host(reports: list[StepReport]) -> list[StepReport]:
    """The same reports on the host, with a single wait for the device."""
    tensors: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    for report in reports:
        report.mapped(collect)
    # float64 holds float32 and the counts exactly.
    packed = torch.cat([tensor.reshape(-1).double() for tensor in tensors]).cpu()
    pieces: Iterator[Tensor] = iter(packed.split([tensor.numel() for tensor in tensors]))  # type: ignore[no-untyped-call]

    def copied(tensor: Tensor) -> Tensor:
        return next(pieces).reshape(tensor.shape).to(tensor.dtype)

    return [report.mapped(copied) for report in reports]
