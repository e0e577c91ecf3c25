"""No image costs more than was promised, whatever its headers say."""

from __future__ import annotations

import pytest

from tests.hostile.images import costly, refused
from tests.hostile.limited import Outcome, decode_all

# What a file below 1 MB may cost: 5 seconds and 1 GB. Machines that run tests are slow and busy, so twice the time.
SECONDS, PEAK = 10.0, 1 << 30


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return decode_all({name: data for name, (data, _) in refused().items()})


@pytest.fixture(scope="module")
def costs() -> dict[str, Outcome]:
    return decode_all(costly())


@pytest.mark.parametrize("name", refused())
def test_a_hostile_image_is_refused_before_it_is_decoded(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert outcome.shape is None
    assert f"{name}: " in (outcome.error or "")
    assert refused()[name][1] in (outcome.error or "")
    assert outcome.seconds < 2
    assert outcome.peak < 200 << 20


@pytest.mark.slow
@pytest.mark.parametrize("name", costly())
def test_a_costly_image_stays_within_the_budget(costs: dict[str, Outcome], name: str) -> None:
    assert len(costly()[name]) < 1_000_000
    outcome = costs[name]
    assert outcome.error is None
    assert outcome.seconds < SECONDS
    assert outcome.peak < PEAK
