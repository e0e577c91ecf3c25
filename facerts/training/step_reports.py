"""What each training step reports: its loss, and whether it is finite.

To read a number, the host must wait until the device has done all work that was queued before. A GPU then has nothing
to do until the host has queued more. The reports of a GPU's steps are therefore read several steps at a time. A CPU's
reports are read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from facerts.errors import NonFiniteLossError
from facerts.losses import LossValue
from facerts.losses.collectives import Processes

# Steps whose reports are read together. The host is at most so many steps ahead of the device.
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
    loss: LossValue
    broken: Tensor
    finite_outputs: dict[str, Tensor] = field(default_factory=dict)

    def with_outputs(self, outputs: Mapping[str, Tensor]) -> StepReport:
        """The same report with the state of the network's outputs, by name."""
        return replace(self, finite_outputs={name: value.isfinite().all() for name, value in outputs.items()})

    def with_part(self, name: str, value: Tensor) -> StepReport:
        """The same report with a further scalar to log."""
        loss = replace(self.loss, parts={**self.loss.parts, name: value})
        return replace(self, loss=loss)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> StepReport:
        """The same report with all of its tensors changed, one after the other."""
        parts, per_image, finite = (
            {name: change(value) for name, value in values.items()}
            for values in (self.loss.parts, self.loss.per_image, self.finite_outputs)
        )
        loss = LossValue(change(self.loss.total), parts, per_image)
        return replace(self, loss=loss, broken=change(self.broken), finite_outputs=finite)

    def check(self, processes: Processes) -> None:
        """Stop all processes by a NonFiniteLossError if the loss of any is not finite, with the cause in each."""
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
        self._pending: list[StepReport] = []

    def add(self, report: StepReport) -> None:
        """Add the report of a step."""
        self._pending.append(report)

    def take(self, *, wait: bool = False) -> list[StepReport]:
        """The reports since the last call, in order; late ones once there are ``GROUP``, or if told to wait.

        If the loss of a step was not finite, a NonFiniteLossError.
        """
        if self.late and not wait and len(self._pending) < GROUP:
            return []
        reports, self._pending = self._pending, []
        if self.late and reports:
            reports = _on_host(reports)
            for report in reports:
                report.check(self._processes)
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
