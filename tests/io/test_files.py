import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from facerts.errors import Error, WriteError
from facerts.io.files import atomic_write, check_writable, locked, sync_names, writing


def test_a_file_appears_only_when_it_is_complete(tmp_path):
    target = tmp_path / "deep" / "file.txt"
    with atomic_write(target, "w") as file:
        file.write("new")
        assert not target.exists()
    assert target.read_text() == "new"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def fail():
        with atomic_write(target) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_written_is_known_before_long_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    check_writable(tmp_path / "new" / "deep" / "rows.csv")
    check_writable(tmp_path / "file")
    with pytest.raises(WriteError, match=r"/file/rows\.csv: cannot be written \(Not a directory\)"):
        check_writable(tmp_path / "file" / "rows.csv")
    with pytest.raises(Error, match="is a folder; give a file"):
        check_writable(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(WriteError, match=r"/rows\.csv: cannot be written \(Permission denied\)"):
        check_writable(tmp_path / "new" / "rows.csv")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WriteError, match=r"^new/rows\.csv: cannot be written \(Permission denied\)"):
        check_writable("new/rows.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_is_not_a_file_to_write(tmp_path):
    with pytest.raises(Error, match="is a folder; give a file"), atomic_write(tmp_path):
        pass
    assert list(tmp_path.parent.glob(".*.part")) == []


def record_disk_events(monkeypatch):
    """Disk events from now on, in order: files that appear, and files and folders that are synced."""
    events = []
    fsync, replace = os.fsync, os.replace

    def sync(handle):
        events.append(("synced", Path(os.readlink(f"/proc/self/fd/{handle}"))))
        fsync(handle)

    def appear(source, target):
        replace(source, target)
        events.append(("appeared", Path(target)))

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", appear)
    return events


def test_a_file_its_name_and_new_folders_survive_a_power_cut(tmp_path, monkeypatch):
    events = record_disk_events(monkeypatch)
    target = tmp_path / "new" / "deep" / "file"
    with atomic_write(target) as file:
        file.write(b"content")
    assert events[:2] == [("synced", tmp_path), ("synced", tmp_path / "new")]
    kind, part = events[2]
    assert (kind, part.suffix, part.parent) == ("synced", ".part", target.parent)
    assert events[3:] == [("appeared", target), ("synced", target.parent)]


def test_the_names_of_many_files_can_be_synced_together(tmp_path, monkeypatch):
    targets = [tmp_path / name for name in ("a", "b")]
    events = record_disk_events(monkeypatch)
    for target in targets:
        with atomic_write(target, sync_name=False) as file:
            file.write(b"content")
    assert [kind for kind, _ in events] == ["synced", "appeared"] * 2
    sync_names(targets)
    assert events[4:] == [("synced", tmp_path)]


def test_a_lock_excludes_others_and_leaves_no_file(tmp_path):
    with locked(tmp_path / "rows.csv"), locked(tmp_path / "other.csv"):
        with (
            pytest.raises(Error, match=rf"{tmp_path}/rows\.csv: process {os.getpid()} on .* is writing it; wait"),
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


def test_a_lock_is_released_when_its_process_is_killed_even_if_a_child_survives(tmp_path):
    path = tmp_path / "rows.csv"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        parent, child = map(int, process.stdout.readline().split())
        try:
            with pytest.raises(Error, match=f"process {parent} on"), locked(path):
                pass
            os.kill(parent, signal.SIGKILL)
            process.wait(10)
            os.kill(child, 0)  # the child is still running
            with locked(path):
                pass
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_lock_file_removed_while_it_is_being_locked_is_created_again(tmp_path, monkeypatch):
    path, flock, removed = tmp_path / "rows.csv", fcntl.flock, []

    def removed_first(handle, operation):
        if not removed:
            removed.append(handle)
            (tmp_path / ".rows.csv.lock").unlink()
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with locked(path), pytest.raises(Error, match="is writing it"), locked(path):
        pass


def test_a_path_that_cannot_be_locked_is_named(tmp_path, monkeypatch):
    def refuse(handle, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    message = r"/rows\.csv: cannot be written \(No locks available\); free up space or choose another location"
    with pytest.raises(Error, match=message), locked(tmp_path / "rows.csv"):
        pass


@pytest.mark.parametrize("kind", ["link", "broken link", "hard link", "pipe", "folder"])
def test_what_only_has_the_name_of_a_lock_is_neither_locked_nor_changed(tmp_path, kind):
    lock, other = tmp_path / ".rows.csv.lock", tmp_path / "other"
    if kind != "broken link":
        other.write_text("precious")
    if kind == "hard link":
        lock.hardlink_to(other)
    elif kind == "pipe":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    else:
        lock.symlink_to(other)
    before = os.lstat(lock)
    with pytest.raises(WriteError, match=r"/\.rows\.csv\.lock .*; remove it"), locked(tmp_path / "rows.csv"):
        pass
    assert os.path.samestat(os.lstat(lock), before)
    assert other.exists() == (kind != "broken link")
    assert not other.exists() or other.read_text() == "precious"


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free up space"),
        (errno.ENAMETOOLONG, "choose a shorter name"),
        (errno.ENOTDIR, "a file is where a folder should be"),
        (errno.EACCES, "choose a location that you may write to"),
        (errno.EROFS, "choose a location that you may write to"),
    ],
)
def test_advice_fits_the_error(tmp_path, number, advice):
    message = rf"/rows\.csv: cannot be written \(.*\); {advice}"
    with pytest.raises(WriteError, match=message), writing(tmp_path / "rows.csv"):
        raise OSError(number, os.strerror(number))
