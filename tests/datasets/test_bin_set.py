"""Sets in a ``.bin`` file, whatever wrote it: read as it was written, or refused with a sentence."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from facerts.datasets.bin_set import BinSet
from facerts.errors import DataError
from tests.hostile import pickles
from tests.hostile.bounded import read_bounded

IMAGES = [bytes([255, 216, number]) * (number + 1) for number in range(6)]
SAME = [True, False, True]


def test_no_pickle_harms_the_process_that_reads_it(tmp_path: Path) -> None:
    paths = []
    for number, content in enumerate(pickles.HOSTILE.values()):
        paths.append(tmp_path / f"{number}.bin")
        paths[-1].write_bytes(content)
    told = dict(zip(pickles.HOSTILE, read_bounded("source", paths).values(), strict=True))
    read = {what for what, sentence in told.items() if not sentence}
    # A picture may stand there several times.
    assert read == {"images that are 100 GB"}
    for what, path in zip(told, paths, strict=True):
        assert what in read or told[what].startswith(f"{path}: "), told[what]


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
        *("bytes", "tuples", "bytearrays", "arrays", "arrays of their own", "flags of NumPy"),
        *("flags, highest byte first", "scalars, highest byte first", "flags as shares", "one picture"),
    ],
)
def test_every_writers_set_is_read(tmp_path: Path, form: Any, protocol: int) -> None:
    content = form()
    (tmp_path / "set.bin").write_bytes(pickle.dumps(content, protocol))
    source = BinSet(tmp_path / "set.bin")
    assert [source.read(index) for index in range(6)] == [bytes(image) for image in content[0]]
    assert source.same.tolist() == SAME


@pytest.mark.parametrize("same", [["yes", "no", "yes"], [None] * 3, np.array([None] * 3)])
def test_what_is_no_flag_is_not_taken_for_one(tmp_path: Path, same: Any) -> None:
    (tmp_path / "set.bin").write_bytes(pickle.dumps((IMAGES, same)))
    with pytest.raises(DataError, match=r"set\.bin: not "):
        BinSet(tmp_path / "set.bin")
