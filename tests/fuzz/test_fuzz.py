"""A short, reproducible run of the fuzzer; ``make fuzz`` runs it for longer."""

import sys

import pytest

from tests.fuzz.campaign import fuzz
from tests.fuzz.readers import READERS
from tests.hostile.sandbox import READ

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by Linux's /proc")
EXAMPLES = 100


@pytest.mark.parametrize(
    ("name", "examples"),
    [("bmp", 20), *(pytest.param(name, EXAMPLES, marks=pytest.mark.slow) for name in READERS)],
)
def test_what_strangers_wrote_is_read_or_refused(name, examples):
    tally = fuzz(name, examples=examples, seed=20)
    assert not tally.failures, "\n".join(outcome.text for _, outcome in tally.failures)
    # Refusing everything, or nothing, would show that the mutations miss the reader.
    assert 0 < tally.outcomes[READ] < tally.outcomes.total()
