"""How far a run has come in its schedule, and the learning rate and the margin there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Literal

from facerts.losses.collectives import Processes

Schedule = Literal["step", "cosine"]

# Share of the measured time of the last validation and checkpoint that is added to it.
MARGIN = 0.25
# Steps from one agreement of several processes to the next, on the time and on interrupts: each is a wait.
AGREED_EVERY = 10


def learning_rate(
    step: float,
    *,
    base: float,
    total: int,
    schedule: Schedule = "step",
    milestones: Sequence[float] = (),
    decay: float = 0.1,
    warmup: float = 0.0,
) -> float:
    """The learning rate of a step.

    Args:
        step: training step, from 0, or position in the schedule; see ``Pace``.
        schedule: "step" multiplies the rate by ``decay`` at every milestone; "cosine" decreases it to 0 at the end of
            the run along half a cosine (Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts).
        milestones: steps at which a "step" schedule decays.
        warmup: number of steps over which the rate rises linearly to ``base``.
    """
    if schedule == "cosine":
        rate = base * 0.5 * (1.0 + math.cos(math.pi * max(step - warmup, 0) / max(total - warmup, 1)))
    else:
        rate = base * decay ** sum(step >= milestone for milestone in milestones)
    return rate * min(1.0, (step + 1) / warmup) if warmup > 0 else rate


def margin_ramp(step: float, total: int, share: float) -> float:
    """Share of its margin that a method applies: linear from 0 to 1 over the first ``share`` of the run."""
    ramp_steps = share * total
    return 1.0 if ramp_steps <= 0 else min(1.0, step / ramp_steps)


class Pace:
    """The position of a run in its schedule, from 0 to the number of its steps.

    A run in its own time moves by 1 with each step. A run with a budget moves by as much more as it takes to reach the
    end in time: learning rate, margin and warm-up run through their whole course in fewer steps. The first step of a
    start, which may compile the network, does not count.

    Args:
        processes: the processes of the run; the clock of the first counts.
        lead: steps by which the host may be ahead of the device, which still has to make them.
    """

    def __init__(
        self,
        total: int,
        position: float = 0.0,
        processes: Processes | None = None,
        *,
        lead: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total = total
        self.position = self._start = position
        self._processes = processes or Processes()
        self._clock = clock
        self._lead = lead
        self._deadline: float | None = None
        # Number, position and time of the first step.
        self._first: tuple[int, float, float] | None = None

    def is_finished(self) -> bool:
        """Whether the run is at the end of its schedule."""
        return self.position >= self.total

    @property
    def steps_left(self) -> int:
        """Steps that are left at most."""
        return math.ceil(self.total - self.position)

    def finish_by(self, deadline: float) -> None:
        """Reach the end of the schedule by this time of the clock."""
        self._deadline = deadline

    def advance(self, step: int) -> None:
        """Move on after a step; all processes must call it together."""
        own = min(self.position + 1, self.total)
        if self._deadline is None:
            self.position = own
            return
        # Between the steps at which the processes agree on the time, they move by 1, which needs no agreement.
        if self._processes.count > 1 and step % AGREED_EVERY:
            self.position = own
            return
        self.position = self._processes.all_gather_object(max(own, self._due(step, own)))[0]

    def steps_at_this_speed(self, steps: int) -> int:
        """Steps that are left if the position goes on as it did over the last ``steps``."""
        moved = self.position - self._start
        return math.ceil((self.total - self.position) * steps / moved) if moved > 0 else self.steps_left

    def _due(self, step: int, own: float) -> float:
        """The position that the run should have by now."""
        assert self._deadline is not None
        now = self._clock()
        if self._first is None:
            self._first = step, own, now
        first_step, position, start = self._first
        per_step = (now - start) / max(step - first_step, 1)
        left = self._deadline - self._lead * per_step - now
        if left <= 0:
            return self.total
        return position + (self.total - position) * (now - start) / (now - start + left)
