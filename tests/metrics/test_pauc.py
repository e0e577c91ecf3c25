from __future__ import annotations

import numpy as np
import pytest

from facerts.metrics.pauc import pauc


def test_the_area_of_a_straight_line() -> None:
    rates = [0.0, 0.1, 0.25, 0.5]
    lines = np.stack([1 - np.array(rates), np.full(4, 0.3)])
    np.testing.assert_allclose(pauc(lines, rates, 0.25), [0.875, 0.3])
    np.testing.assert_allclose(pauc(lines, rates, 0.5), [0.75, 0.3])


@pytest.mark.parametrize(("rates", "end"), [((0.0, 0.1), 0.2), ((0.1, 0.2), 0.2), ((0.0, 0.1, 0.3), 0.2)])
def test_it_must_end_at_one_of_the_rates(rates: tuple[float, ...], end: float) -> None:
    with pytest.raises(ValueError, match="not one of the rates"):
        pauc(np.ones(len(rates)), rates, end)
