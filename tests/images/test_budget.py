"""Images that threads decode at the same time."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from facerts.images import decode, encode_png, in_flight
from facerts.images.limits import reserve
from facerts.io.map_ahead import ByteBudget
from facerts.scoring.prepare import LazyImage, prepare


@pytest.mark.parametrize("side", [10, 1000])
def test_decoded_images_together_hold_few_bytes(monkeypatch, side):
    monkeypatch.setattr("facerts.images.limits._budget", ByteBudget(2 * 3 * 100 * 100))
    working, most = [], [0]

    def detect(image):
        working.append(image)
        most[0] = max(most[0], len(working))
        time.sleep(0.005)
        working.pop()
        return []

    data = encode_png(np.zeros((100, 100, 3), np.uint8))
    large = encode_png(np.zeros((side, side, 3), np.uint8))
    images = [LazyImage("x", partial(decode, each, where="x")) for each in (large, *[data] * 20)]
    with ThreadPoolExecutor(8) as pool:
        prepared = list(pool.map(lambda image: prepare(image, detect), images))
    assert [image.error for image in prepared] == [None] * 21
    assert most[0] == 2


def test_who_holds_something_does_not_wait(monkeypatch):
    monkeypatch.setattr("facerts.images.limits._budget", budget := ByteBudget(300))
    with in_flight(), in_flight():
        reserve(10, 10)
        reserve(10, 10)
    reserve(100, 100)
    budget.take(300)
