import os
from pathlib import Path

import pytest

from facerts.io.file_names import MAX_NAME_BYTES, MAX_PATH_BYTES, safe_name, safe_path

HOSTILE = [
    "x" * 300 + ".jpg",
    "x" * 300 + ".png",
    "x" * 301 + ".jpg",
    "\N{GREEK SMALL LETTER OMEGA}" * 150 + ".jpg",
    "a." + "x" * 300,
    "a\0.jpg",
    "a\ud800.jpg",
    "a\udfff.jpg",
    "a/.jpg",
    "",
    ".",
    "..",
    "/",
    os.fsdecode(b"\xff" * 300),
]


@pytest.mark.parametrize("name", ["Ann.jpg", "x" * 216 + ".jpg", ".hidden", "...", "a b\nc", os.fsdecode(b"\xff.jpg")])
def test_a_name_that_a_file_can_have_is_kept(name):
    assert safe_name(name) == name


def test_any_other_name_becomes_one_that_a_file_can_have(tmp_path):
    for name in HOSTILE:
        safe = safe_name(name)
        assert len(os.fsencode(safe)) <= MAX_NAME_BYTES
        (tmp_path / safe).write_bytes(b"")
        assert safe_name(name) == safe
        assert name[-4:] not in (".jpg", ".png") or safe.endswith(name[-4:])
    assert len(list(tmp_path.iterdir())) == len(HOSTILE)


def test_a_path_stays_inside_and_is_not_too_long(tmp_path):
    paths = [safe_path(parts) for parts in (["a", "b.jpg"], ["..", "b.jpg"], ["/", "b.jpg"], ["d" * 200] * 25)]
    assert paths[0] == Path("a", "b.jpg")
    for path in paths:
        assert len(os.fsencode(path)) <= MAX_PATH_BYTES
        assert (tmp_path / path).resolve() == tmp_path / path
    deep = safe_path(["d" * 200] * 24 + ["e.jpg"])
    assert deep.name == "e.jpg"
    assert len(safe_path(["d"] * 100 + ["e.jpg"]).parts) == 2
    assert deep != safe_path(["d" * 200] * 23 + ["e.jpg"])
