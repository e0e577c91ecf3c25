"""What changes over a run: the learning rate and the margin."""

from __future__ import annotations

from collections.abc import Sequence


def learning_rate(
    step: int, *, base: float, milestones: Sequence[float], decay: float, warmup: float = 0.0
) -> float:
    """Step schedule: ``base`` times ``decay`` for every milestone (in steps) that has passed.

    During the first ``warmup`` steps it rises linearly to ``base``.
    """
    rate = base * decay ** sum(step >= milestone for milestone in milestones)
    return rate * min(1.0, (step + 1) / warmup) if warmup > 0 else rate


def margin_ramp(step: int, total: int, share: float) -> float:
    """How much of its margin a method uses: linear from 0 to 1 over the first ``share`` of the run."""
    rising = share * total
    return 1.0 if rising <= 0 else min(1.0, step / rising)
