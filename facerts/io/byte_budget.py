"""A number of bytes that threads share."""

from __future__ import annotations

import math
from threading import Condition, Lock


class ByteBudget:
    """Bytes that several threads may hold together.

    Whoever wants more than is left waits, in turn; one alone may have any number.
    """

    def __init__(self, size: float) -> None:
        self._size = size
        self._held = 0
        self._turn = Lock()
        self._changed = Condition()

    def take(self, count: int) -> None:
        """Hold so many more, once there is room for them."""
        with self._turn, self._changed:
            self._changed.wait_for(lambda: self._held <= max(0, self._size - count))
            self._held += count

    def add(self, count: int) -> None:
        """Hold so many more, or fewer, without waiting."""
        with self._changed:
            self._held += count
            self._changed.notify_all()

    def lift(self) -> None:
        """Set no limit any more."""
        with self._changed:
            self._size = math.inf
            self._changed.notify_all()
