from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from facerts.errors import Error
from facerts.files import atomic_write, sha256_file


def test_a_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.txt"
    with atomic_write(target, "w") as file:
        file.write("new")
        assert not target.exists()
    assert target.read_text() == "new"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def fail() -> None:
        with atomic_write(target) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_hash_is_sha256(tmp_path: Path) -> None:
    content = bytes(range(256)) * 9000
    (tmp_path / "file").write_bytes(content)
    assert sha256_file(tmp_path / "file") == hashlib.sha256(content).hexdigest()


def test_a_folder_is_not_a_file_to_write(tmp_path: Path) -> None:
    with pytest.raises(Error, match="is a folder; name a file"), atomic_write(tmp_path):
        pass
    assert list(tmp_path.parent.glob(".*.part")) == []
