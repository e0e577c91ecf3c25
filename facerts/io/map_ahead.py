"""Compute ahead of the consumer: the only read-ahead in the package."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition, Lock
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# Of items in the pool, and again of results that wait to be taken.
MAX_BYTES = 48 << 20


def map_ahead(
    pool: ThreadPoolExecutor,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    depth: int,
    *,
    size: Callable[[Any], int] = lambda _: 0,
    max_bytes: int = MAX_BYTES,
) -> Iterator[Result]:
    """The function of each item, in order, computed in a pool up to ``depth`` items ahead.

    Args:
        size: bytes that an item or a result holds.
        max_bytes: no item is drawn while those ahead hold more, and none is begun while results do.
    """
    waiting: deque[tuple[Future[Result], int]] = deque()
    drawn = 0
    results = ByteBudget(max_bytes)

    def work(item: Item) -> Result:
        results.take(0)
        result = function(item)
        results.add(size(result))
        return result

    def taken() -> Result:
        nonlocal drawn
        future, held = waiting.popleft()
        drawn -= held
        try:
            result = future.result()
        finally:
            # An error, which has this frame in its trace, would keep itself and all frames.
            del future
        results.add(-size(result))
        return result

    try:
        for item in items:
            waiting.append((pool.submit(work, item), size(item)))
            drawn += waiting[-1][1]
            # Not kept while the next one is drawn.
            del item
            while waiting and (len(waiting) >= depth or drawn > max_bytes):
                yield taken()
        while waiting:
            yield taken()
    finally:
        # After an error, or if the caller stops early, work that has not started is canceled.
        for future, _ in waiting:
            future.cancel()
        results.lift()


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
