import numpy as np
import pytest

from facerts.training.schedule import learning_rate, margin_ramp


def test_the_rate_falls_at_each_milestone_and_not_before():
    rates = [
        learning_rate(step, base=0.1, total=32, milestones=[20, 28], decay=0.1) for step in (0, 19, 20, 27, 28, 31)
    ]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_the_rate_rises_over_the_warm_up():
    rates = [learning_rate(step, base=1.0, total=9, warmup=4) for step in range(6)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_a_cosine_falls_from_the_end_of_the_warm_up_to_0():
    rates = [learning_rate(step, base=0.2, total=12, schedule="cosine", warmup=2) for step in range(13)]
    assert rates[:3] == pytest.approx([0.1, 0.2, 0.2])
    assert rates[7] == pytest.approx(0.1)
    assert rates[12] == pytest.approx(0.0)
    falls = -np.diff(rates[2:])
    assert (falls > 0).all()
    assert falls.argmax() in (4, 5)


def test_the_margin_rises_linearly_over_the_first_half_and_stays():
    assert [margin_ramp(step, 100, 0.5) for step in (0, 25, 50, 99)] == [0.0, 0.5, 1.0, 1.0]
    assert margin_ramp(0, 100, 0.0) == 1.0
