"""No image costs more than was promised, whatever its headers say."""

import sys

import numpy as np
import pytest

from facerts.images import encode_png, read
from tests.hostile.images import costly, refused
from tests.hostile.sandbox import READ, REFUSED, Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by Linux's /proc")
# What a file below 1 MB may cost: 5 seconds and 1 GB. Machines that run tests are slow and busy, so twice the time.
SECONDS, MEBIBYTES = 10.0, 1024


def decode_file(folder):
    (file,) = folder.iterdir()
    read(file)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(decode_file, {"a.png": encode_png(np.zeros((9, 9, 3), dtype=np.uint8))}) as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", refused())
def test_a_hostile_image_is_refused_before_it_is_decoded(sandbox, name):
    data, reason = refused()[name]
    outcome = sandbox.run({name: data})
    assert outcome.kind == REFUSED
    assert f"{name}: " in outcome.text
    assert reason in outcome.text
    assert outcome.seconds < 2
    assert outcome.mebibytes < 150


@pytest.mark.slow
@pytest.mark.parametrize("name", costly())
def test_a_costly_image_stays_within_the_budget(sandbox, name):
    data = costly()[name]
    assert len(data) < 1_000_000
    outcome = sandbox.run({name: data})
    assert outcome.kind == READ, outcome.text
    assert outcome.seconds < SECONDS
    assert outcome.mebibytes < MEBIBYTES
