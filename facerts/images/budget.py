"""Decoded images that threads work on: together they hold a bounded number of bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from facerts.io.byte_budget import ByteBudget

# Of all threads: fourteen photos of 12 megapixels, or two of the largest.
MAX_BYTES_IN_FLIGHT = 512 << 20

_budget = ByteBudget(MAX_BYTES_IN_FLIGHT)
_thread = threading.local()


@contextmanager
def in_flight() -> Iterator[None]:
    """What this thread decodes inside is in flight until the end; before the first image it waits for room."""
    if hasattr(_thread, "held"):
        yield
        return
    _thread.held = 0
    try:
        yield
    finally:
        _budget.add(-_thread.held)
        del _thread.held


def reserve(height: int, width: int) -> None:
    """Called before an image of this size gets its pixels."""
    if not hasattr(_thread, "held"):
        return
    count = 3 * height * width
    # Whoever has something does not wait, so that no two wait for each other.
    (_budget.add if _thread.held else _budget.take)(count)
    _thread.held += count
