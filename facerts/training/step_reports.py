"""What each training step reports: its loss, and whether it is finite.

To read a number, the host must wait until the device has done all work that was queued before. A GPU then has nothing
to do until the host has queued more. The reports of a GPU's steps are therefore copied to the host a few steps at a
time, in the background, and read a few steps later. A CPU's reports are read at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from facerts.errors import NonFiniteLossError
from facerts.training.distributed.collectives import Processes
from facerts.training.methods import Loss

# Steps whose reports are copied together. The host is at most twice as many steps ahead of the device.
GROUP = 10


def reads_late(device: torch.device, precision: str) -> bool:
    """Whether reading a number at each step would be an additional wait for the device.

    With fp16 it would not, because the loss scale makes each step wait anyway.
    """
    return device.type != "cpu" and precision != "fp16"


@dataclass(frozen=True)
class StepReport:
    """What a step reports.

    Attributes:
        step: step of the run, from 0.
        loss: its loss in this process, detached.
        broken: scalar, number of processes whose loss is not finite.
        finite_outputs: scalars, whether an output of the network is finite, by the output's name.
    """

    step: int
    learning_rate: float
    ramp: float
    loss: Loss
    broken: Tensor
    finite_outputs: dict[str, Tensor] = field(default_factory=dict)

    def with_outputs(self, outputs: Mapping[str, Tensor]) -> StepReport:
        """The same report with the state of the network's outputs, by name."""
        return replace(self, finite_outputs={name: value.isfinite().all() for name, value in outputs.items()})

    def with_part(self, name: str, value: Tensor) -> StepReport:
        """The same report with a further scalar to log."""
        loss = replace(self.loss, parts={**self.loss.parts, name: value})
        return replace(self, loss=loss)

    def tensors(self) -> list[Tensor]:
        """All tensors of the report, in the order that ``with_tensors`` takes."""
        loss = self.loss
        values = (loss.total, *loss.parts.values(), *loss.per_image.values())
        return [*values, self.broken, *self.finite_outputs.values()]

    def with_tensors(self, tensors: list[Tensor]) -> StepReport:
        """The same report with other tensors."""
        values = iter(tensors)
        loss = Loss(
            next(values),
            {name: next(values) for name in self.loss.parts},
            {name: next(values) for name in self.loss.per_image},
        )
        broken = next(values)
        return replace(
            self,
            loss=loss,
            broken=broken,
            finite_outputs={name: next(values) for name in self.finite_outputs},
        )

    def check(self, processes: Processes) -> None:
        """Stop all processes if the loss of any is not finite, with the cause in each of them.

        Raises:
            NonFiniteLossError: the loss is not finite in this process or another.
        """
        if self.broken.item() == 0:
            return
        causes = processes.all_gather_object(None if self.loss.total.isfinite() else self._cause())
        raise NonFiniteLossError(
            "; ".join(
                cause if processes.count == 1 else f"process {rank}: {cause}"
                for rank, cause in enumerate(causes)
                if cause is not None
            )
        )

    def _cause(self) -> str:
        """Where the loss stopped being finite, and what to do."""
        parts = ", ".join(f"{name} {value.item():.4g}" for name, value in self.loss.parts.items())
        broken = [name for name, finite in self.finite_outputs.items() if not finite]
        network = (
            f"network outputs not finite: {', '.join(broken)}" if broken else "all network outputs finite"
        )
        return (
            f"the loss is {self.loss.total.item()} at step {self.step}: {parts}; {network}; learning rate "
            f"{self.learning_rate:g}, margin ramp {self.ramp:.2f}. Lower optim.lr, set optim.clip_norm, or use bf16 "
            "instead of fp16; --resume continues from the last checkpoint"
        )


class StepReports:
    """The reports of the last steps; all processes of the run add and take theirs at the same steps."""

    def __init__(self, late: bool, processes: Processes) -> None:
        self.late = late
        self._processes = processes
        self._on_device: list[StepReport] = []
        self._on_the_way: _HostCopy | None = None
        self._arrived: list[StepReport] = []

    def add(self, report: StepReport) -> None:
        """Add the report of a step.

        Raises:
            NonFiniteLossError: the loss of an earlier step, whose report has arrived, was not finite.
        """
        if not self.late:
            self._arrived.append(report)
            return
        self._on_device.append(report)
        if len(self._on_device) == GROUP:
            self._receive()
            self._send()

    def take(self, *, wait: bool = False) -> list[StepReport]:
        """The reports that have arrived since the last call, in order of their steps.

        Raises:
            NonFiniteLossError: the loss of a step was not finite.
        """
        if wait:
            self._receive()
            self._send()
            self._receive()
        arrived, self._arrived = self._arrived, []
        return arrived

    def _send(self) -> None:
        if self._on_device:
            self._on_the_way = _HostCopy(self._on_device)
            self._on_device = []

    def _receive(self) -> None:
        if self._on_the_way is None:
            return
        reports, self._on_the_way = self._on_the_way.read(), None
        for report in reports:
            report.check(self._processes)
        self._arrived += reports


class _HostCopy:
    """A copy of some reports on its way to the host."""

    def __init__(self, reports: list[StepReport]) -> None:
        self._reports = [
            report.with_tensors([torch.empty_like(tensor, device="cpu") for tensor in report.tensors()])
            for report in reports
        ]
        # One tensor, so that there is one transfer. float64 holds float32 and the counts exactly.
        packed = torch.cat([tensor.reshape(-1).double() for report in reports for tensor in report.tensors()])
        self._packed = packed.to("cpu", non_blocking=True)
        self._copied: Any = torch.cuda.Event() if packed.is_cuda else None  # type: ignore[no-untyped-call]
        if self._copied is not None:
            self._copied.record()

    def read(self) -> list[StepReport]:
        """The reports, on the host."""
        if self._copied is not None:
            self._copied.synchronize()
        start = 0
        for report in self._reports:
            for tensor in report.tensors():
                tensor.copy_(self._packed[start : start + tensor.numel()].reshape(tensor.shape))
                start += tensor.numel()
        return self._reports
