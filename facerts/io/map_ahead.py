"""Compute ahead of the consumer: the only read-ahead in the package."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(
    pool: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item], depth: int
) -> Iterator[Result]:
    """The function of each item, in order, computed in a pool up to ``depth`` items ahead."""
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # After an error, or if the caller stops early, work that has not started is canceled.
        for future in waiting:
            future.cancel()
