"""Signals that stop a run after the step that it is in."""

from __future__ import annotations

import atexit
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

# A terminal or a queue signals all processes, and torchrun forwards the signal that it got itself. Within this time, a
# second signal counts as the same interrupt.
SAME_INTERRUPT_S = 2.0


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Turn SIGINT and SIGTERM into a flag for the loop to check between steps; a second one raises immediately."""
    interrupted_at: float | None = None
    in_loop = True

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted_at
        interrupted_at = interrupted_at or time.monotonic()
        if time.monotonic() - interrupted_at <= SAME_INTERRUPT_S:
            return
        if in_loop:
            raise KeyboardInterrupt
        signal.signal(number, previous[signal.Signals(number)])
        signal.raise_signal(number)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: interrupted_at is not None
    finally:
        in_loop = False
        if interrupted_at is None:
            _handle_signals(previous)
        else:
            # Its repetition may come while the process ends, when Python restores the defaults, which kill.
            atexit.register(_handle_signals, dict.fromkeys(previous, signal.SIG_IGN))


def _handle_signals(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
