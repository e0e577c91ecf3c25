"""How far a run has come in its schedule: by its steps, or by the time that it may take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from facerts.losses.collectives import Processes
from facerts.training.step_reports import GROUP

# Share of the measured time of the last validation and checkpoint that is added to it.
MARGIN = 0.25


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
        if self._processes.count > 1 and step % GROUP:
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
