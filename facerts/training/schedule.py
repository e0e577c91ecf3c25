"""Schedules of the learning rate and of the margin over a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Schedule = Literal["step", "cosine"]


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
        step: training step, from 0, or position in the schedule; see ``pace``.
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
