from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from facerts.errors import Error
from facerts.io.files import atomic_write, locked, sha256_file, sync_names


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


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """What happens on the disk from now on: files that appear, and what is waited for."""
    happened: list[tuple[str, Path]] = []
    fsync, replace = os.fsync, os.replace

    def sync(handle: int) -> None:
        happened.append(("synced", Path(os.readlink(f"/proc/self/fd/{handle}"))))
        fsync(handle)

    def appear(source: str | Path, target: str | Path) -> None:
        replace(source, target)
        happened.append(("appeared", Path(target)))

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", appear)
    return happened


def test_a_file_its_name_and_new_folders_outlast_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened = recorded(monkeypatch)
    target = tmp_path / "new" / "deep" / "file"
    with atomic_write(target) as file:
        file.write(b"content")
    assert happened[:2] == [("synced", tmp_path), ("synced", tmp_path / "new")]
    kind, part = happened[2]
    assert (kind, part.suffix, part.parent) == ("synced", ".part", target.parent)
    assert happened[3:] == [("appeared", target), ("synced", target.parent)]


def test_names_of_many_files_may_be_waited_for_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = [tmp_path / name for name in ("a", "b")]
    happened = recorded(monkeypatch)
    for target in targets:
        with atomic_write(target, named=False) as file:
            file.write(b"content")
    assert [kind for kind, _ in happened] == ["synced", "appeared"] * 2
    sync_names(targets)
    assert happened[4:] == [("synced", tmp_path)]


def test_a_lock_lets_one_in_and_is_gone_afterwards(tmp_path: Path) -> None:
    with locked(tmp_path / "rows.csv"), locked(tmp_path / "other.csv"):
        with (
            pytest.raises(
                Error, match=rf"{tmp_path}/rows\.csv: process {os.getpid()} on .* is writing it; wait"
            ),
            locked(tmp_path / "deeper" / ".." / "rows.csv"),
        ):
            pass
        assert (tmp_path / ".rows.csv.lock").exists()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []
    with locked(tmp_path / "rows.csv"):
        pass


HOLDER = """
import os, sys, time
from facerts.io.files import locked
with locked(sys.argv[1]):
    if os.fork() == 0:
        print(os.getppid(), os.getpid(), flush=True)
    time.sleep(60)
"""


def test_a_lock_ends_with_its_process_however_that_ends_and_whatever_it_has_started(tmp_path: Path) -> None:
    place = tmp_path / "rows.csv"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, place], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        parent, child = map(int, process.stdout.readline().split())
        try:
            with pytest.raises(Error, match=f"process {parent} on"), locked(place):
                pass
            os.kill(parent, signal.SIGKILL)
            process.wait(10)
            os.kill(child, 0)  # it is still there
            with locked(place):
                pass
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_lock_that_was_removed_while_somebody_came_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, flock, late = tmp_path / "rows.csv", fcntl.flock, []

    def removed_first(handle: int, how: int) -> None:
        if not late:
            late.append(handle)
            (tmp_path / ".rows.csv.lock").unlink()
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with locked(place), pytest.raises(Error, match="is writing it"), locked(place):
        pass


def test_a_place_that_cannot_be_locked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    why = r"/rows\.csv: cannot be written \(No locks available\); make room there, or choose another place"
    with pytest.raises(Error, match=why), locked(tmp_path / "rows.csv"):
        pass
