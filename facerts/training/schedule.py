"""What changes over a run: the learning rate and the margin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Schedule = Literal["step", "cosine"]


def learning_rate(
    step: int,
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
        step: from 0.
        base: the rate at its highest.
        total: steps of the run.
        schedule: "step" is ``base`` times ``decay`` for every milestone that has passed; "cosine" falls along half a
            cosine to 0 at the end of the run (Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts).
        milestones: in steps.
        decay: factor of a milestone.
        warmup: steps over which the rate rises linearly to ``base``.
    """
    if schedule == "cosine":
        rate = base * 0.5 * (1.0 + math.cos(math.pi * max(step - warmup, 0) / max(total - warmup, 1)))
    else:
        rate = base * decay ** sum(step >= milestone for milestone in milestones)
    return rate * min(1.0, (step + 1) / warmup) if warmup > 0 else rate


def margin_ramp(step: int, total: int, share: float) -> float:
    """How much of its margin a method uses: linear from 0 to 1 over the first ``share`` of the run."""
    rising = share * total
    return 1.0 if rising <= 0 else min(1.0, step / rising)
