"""When to try again to open a stream or a camera that has dropped, and when to give up."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

FIRST_DELAY, MAX_DELAY = 0.5, 10.0


@dataclass
class Reconnection:
    """Waits between attempts, twice as long each time, up to ten seconds.

    Attributes:
        seconds: how long without a frame until no further attempt is made; 0 for no attempts.
    """

    seconds: float
    _delay: float = FIRST_DELAY
    _since: float = field(default_factory=time.monotonic)

    def reset(self) -> None:
        """A frame has come."""
        self._delay, self._since = FIRST_DELAY, time.monotonic()

    def wait(self) -> bool:
        """Wait until the next attempt; False if there is to be none."""
        left = self.seconds - (time.monotonic() - self._since)
        if left <= 0:
            return False
        time.sleep(min(self._delay, left))
        self._delay = min(2 * self._delay, MAX_DELAY)
        return True
