"""The time that scores take per face, by a clock that the tests set."""

import numpy as np
import pytest

from facerts.evaluation.quality_costs import milliseconds_per_face


class Clock:
    """A clock that only scores move on, and the name and the number of crops of each of their calls."""

    def __init__(self):
        self.seconds = 100.0
        self.calls = []

    def __call__(self):
        return self.seconds

    def score(self, name, *seconds_of_calls):
        """A score whose calls take the given seconds, one after the other."""
        remaining = iter(seconds_of_calls)

        def of_crops(crops):
            self.calls.append((name, len(crops)))
            self.seconds += next(remaining)

        return of_crops


def test_scores_take_turns_and_a_cost_is_the_median_of_the_rounds_after_a_warm_up():
    clock, crops = Clock(), np.zeros((4, 112, 112, 3), dtype=np.uint8)
    # A warm-up, then rounds of two calls: 0.4, 2.0 and 0.6 seconds for four crops.
    scores = {
        "a": clock.score("a", 50, 0.1, 0.3, 1.5, 0.5, 0.2, 0.4),
        "b": clock.score("b", 70, 4, 4, 2, 2, 6, 6),
    }
    costs = milliseconds_per_face(scores, crops, batch_size=2, rounds=3, clock=clock)
    assert list(costs) == ["a", "b"]
    for name, expected in (("a", (150, 100, 500)), ("b", (2000, 1000, 3000))):
        assert (costs[name].value, *costs[name].range) == pytest.approx(expected)
    assert clock.calls == [("a", 2), ("b", 2), *[("a", 2), ("a", 2), ("b", 2), ("b", 2)] * 3]


@pytest.mark.parametrize(("crops", "rounds", "batch_size"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_nothing_to_measure_is_refused(crops, rounds, batch_size):
    with pytest.raises(ValueError, match="each must be at least 1"):
        milliseconds_per_face({"a": len}, np.zeros((crops, 112, 112, 3)), rounds=rounds, batch_size=batch_size)
