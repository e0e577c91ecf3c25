"""The sandbox sees what it is there to see."""

import ctypes
import sys
import time

import pytest

from facerts.errors import DataError
from tests.hostile.sandbox import DIED, ESCAPED, LARGE, READ, REFUSED, SLOW, Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by Linux's /proc")
MIB = 1 << 20


def obey(folder):
    """Do as the file says."""
    match (folder / "a").read_text():
        case "refuse":
            raise DataError("a: not so")
        case "escape":
            raise ValueError("unforeseen")
        case "crash":
            ctypes.string_at(1)
        case "work":
            begin = time.process_time()
            while time.process_time() - begin < 5.5:
                pass
        case "hang":
            time.sleep(600)
        case "fill":
            bytearray(1100 * MIB)[::4096] = b"x" * (1100 * MIB // 4096)
        case "fill too much":
            bytearray(8000 * MIB)
        case "hide it":
            raise DataError("a: OpenCV: Insufficient memory")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "kind"),
    [
        *(("read", READ), ("refuse", REFUSED), ("escape", ESCAPED), ("crash", DIED), ("work", SLOW)),
        *(("fill", LARGE), ("fill too much", ESCAPED), ("hide it", LARGE)),
    ],
)
def test_the_outcome_of_a_case(command, kind):
    with Sandbox(obey, {"a": b"read"}) as sandbox:
        assert sandbox.run({"a": command.encode()}).kind == kind
        # A process that died or was killed is replaced by another.
        assert sandbox.run({"a": b"read"}).kind == READ


@pytest.mark.slow
def test_memory_is_measured_relative_to_before_the_case():
    with Sandbox(obey, {"a": b"read"}) as sandbox:
        assert sandbox.run({"a": b"fill"}).mebibytes == pytest.approx(1100, rel=0.05)
        assert sandbox.run({"a": b"read"}).mebibytes < 50


def test_first_files_that_cannot_be_read_are_an_error():
    with Sandbox(obey, {"a": b"refuse"}) as sandbox, pytest.raises(RuntimeError, match="not so"):
        sandbox.run({"a": b"read"})
