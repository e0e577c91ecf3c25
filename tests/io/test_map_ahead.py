"""What is computed ahead, and that it holds few bytes."""

import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from facerts.io.map_ahead import ByteBudget, map_ahead


class Item:
    """What weak references can be taken of."""


def test_items_are_drawn_while_those_ahead_hold_few_bytes():
    drawn = []

    def items():
        for _ in range(9):
            item = Item()
            drawn.append(weakref.ref(item))
            yield item
            del item
            end = time.monotonic() + 10
            while drawn[-1]() is not None:
                assert time.monotonic() < end, "an item is kept when it is done"
                time.sleep(0.001)

    with (
        ThreadPoolExecutor(2) as pool,
        closing(map_ahead(pool, type, items(), 100, size=lambda _: 40, max_bytes=100)) as results,
    ):
        assert next(results) is Item
        assert len(drawn) == 3
        assert list(results) == [Item] * 8


def test_nothing_is_begun_while_results_hold_many_bytes():
    begun = []

    def work(item):
        begun.append(item)
        return bytes(60)

    with (
        ThreadPoolExecutor(1) as pool,
        closing(map_ahead(pool, work, [b""] * 8, 8, size=len, max_bytes=100)) as results,
    ):
        assert next(results) == bytes(60)
        while len(begun) < 3:
            time.sleep(0.001)
        # Time for what should not happen.
        time.sleep(0.05)
        assert len(begun) == 3
    # The thread that waits is no reason not to stop.
    assert len(begun) == 4


def test_a_budget_is_held_by_few_and_one_alone_may_have_any_number():
    budget = ByteBudget(100)
    budget.take(1000)
    taken = threading.Event()
    threading.Thread(target=lambda: (budget.take(60), taken.set())).start()
    assert not taken.wait(0.02)
    budget.add(-1000)
    assert taken.wait(10)
