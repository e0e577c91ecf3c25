"""``.bin`` sets by any writer: read as they were written, or refused with a clear error."""

import pickle

import numpy as np
import pytest

from facerts.datasets.bin_set import BinSet
from facerts.errors import DataError

IMAGES = [bytes([255, 216, number]) * (number + 1) for number in range(6)]
SAME = [True, False, True]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "form",
    [
        lambda: (IMAGES, SAME),
        lambda: [tuple(IMAGES), tuple(SAME)],
        lambda: ([bytearray(image) for image in IMAGES], [1, 0, 1]),
        lambda: ([np.frombuffer(image, np.uint8) for image in IMAGES], np.array(SAME)),
        lambda: ([np.frombuffer(image, np.uint8).copy() for image in IMAGES], np.array([1, 0, 1])),
        lambda: (IMAGES, list(np.array(SAME))),
        lambda: (IMAGES, np.array([1, 0, 1], dtype=">i4")),
        lambda: (IMAGES, list(np.array([1, 0, 1], dtype=">i8"))),
        lambda: (IMAGES, np.array([1.0, 0.0, 1.0], dtype=np.float32)),
        lambda: ([IMAGES[0]] * 6, SAME),
    ],
    ids=[
        *("bytes", "tuples", "bytearrays", "arrays", "copied arrays", "NumPy flags"),
        *("big-endian flags", "big-endian scalars", "flags as floats", "one image"),
    ],
)
def test_sets_by_every_writer_are_read(tmp_path, form, protocol):
    content = form()
    (tmp_path / "set.bin").write_bytes(pickle.dumps(content, protocol))
    source = BinSet(tmp_path / "set.bin")
    assert [source.read(index) for index in range(6)] == [bytes(image) for image in content[0]]
    assert source.same.tolist() == SAME


@pytest.mark.parametrize("same", [["yes", "no", "yes"], [None] * 3, np.array([None] * 3)])
def test_values_that_are_not_flags_are_refused(tmp_path, same):
    (tmp_path / "set.bin").write_bytes(pickle.dumps((IMAGES, same)))
    with pytest.raises(DataError, match=r"set\.bin: not "):
        BinSet(tmp_path / "set.bin")


def test_sets_by_python_2_are_read(tmp_path):
    # Byte strings are BINSTRING, flags INT; written out by hand.
    body = b"".join(b"T" + len(image).to_bytes(4, "little") + image + b"a" for image in IMAGES)
    flags = b"".join((b"I01\n" if flag else b"I00\n") + b"a" for flag in SAME)
    (tmp_path / "set.bin").write_bytes(b"\x80\x02" + b"]" + body + b"]" + flags + b"\x86.")
    source = BinSet(tmp_path / "set.bin")
    assert [source.read(index) for index in range(6)] == IMAGES
    assert source.same.tolist() == SAME
