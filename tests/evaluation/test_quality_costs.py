"""The time that scores take per face, by a clock that the tests set."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.evaluation.quality_costs import milliseconds_per_face

Crops = NDArray[np.uint8]


class Clock:
    """A clock that only scores move on.

    Attributes:
        seconds: the time.
        calls: name and number of crops of each call of a score, in order.
    """

    def __init__(self) -> None:
        self.seconds = 100.0
        self.calls: list[tuple[str, int]] = []

    def __call__(self) -> float:
        return self.seconds

    def score(self, name: str, seconds_of_calls: Iterable[float]) -> Callable[[Crops], None]:
        """A score whose calls take the given seconds, one after the other."""
        remaining = iter(seconds_of_calls)

        def of_crops(crops: Crops) -> None:
            self.calls.append((name, len(crops)))
            self.seconds += next(remaining)

        return of_crops


@pytest.fixture
def clock() -> Clock:
    return Clock()


def blank(count: int) -> Crops:
    return np.zeros((count, 112, 112, 3), dtype=np.uint8)


def test_a_cost_is_the_median_of_the_rounds_after_a_warm_up(clock):
    # A warm-up, then rounds of two calls: 0.4, 2.0 and 0.6 seconds for four crops.
    score = clock.score("a", [50, 0.1, 0.3, 1.5, 0.5, 0.2, 0.4])
    costs = milliseconds_per_face({"a": score}, blank(4), batch_size=2, rounds=3, clock=clock)
    assert costs["a"].median == pytest.approx(150)


def test_several_scores_take_turns_in_each_round(clock):
    scores = {"a": clock.score("a", [50, 0.2, 0.6, 0.1, 0.3]), "b": clock.score("b", [70, 4, 2, 8, 6])}
    costs = milliseconds_per_face(scores, blank(2), rounds=4, clock=clock)
    assert [name for name, _ in clock.calls] == ["a", "b"] * 5
    assert list(costs) == ["a", "b"]
    for cost, expected in ((costs["a"], (125, 50, 300)), (costs["b"], (2500, 1000, 4000))):
        assert (cost.median, cost.low, cost.high) == pytest.approx(expected)


@pytest.mark.parametrize(("crops", "rounds", "batch_size"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_nothing_to_measure_is_refused(crops, rounds, batch_size):
    with pytest.raises(ValueError, match="each must be at least 1"):
        milliseconds_per_face({"a": len}, blank(crops), rounds=rounds, batch_size=batch_size)
