"""Fails every change of files that a command makes, one after the other, and looks at what is left.

Each change is failed twice: the process is killed there, and the disk is full from there on. Afterwards a reader must
see the state before the command or the one after it, the next run must go on, and nothing of the failed one may be left
when that has ended.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
COUNT, KILL, FULL = range(3)
KILLED = -9
# Where syncing takes no time.
MEMORY = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)
# Every change is failed, not only as many of each command as fit into the tests' time.
EVERY = os.environ.get("FACERTS_EVERY_FAULT") == "1"
# Files whose names have times, or that lock nothing after a kill.
IGNORED = ("events.out.", ".lock")


class Ended(NamedTuple):
    """A command that has ended.

    Attributes:
        changes: number of files and folders that it changed.
    """

    status: int
    changes: int
    out: str
    err: str


class Commands:
    """Runs commands in a folder, see ``server``."""

    def __init__(self, process, scratch):
        self._process = process
        self._streams = scratch / "out", scratch / "err"

    def __call__(self, folder, *arguments, setup="", environment=None, at=-1, mode=COUNT):
        out, err = self._streams
        request = {
            "folder": str(folder), "arguments": [*map(str, arguments)], "setup": setup, "at": at, "mode": mode,
            "environment": dict(environment or {}), "out": str(out), "err": str(err),
        }  # fmt: skip
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status, changes = json.loads(self._process.stdout.readline())
        return Ended(status, int(changes or -1), out.read_text(), err.read_text())


@contextmanager
def commands(*modules):
    """Commands whose changes can fail; modules that they need are loaded once."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("failing writes needs Linux and a C compiler")
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch, "faults.so")
        source = Path(__file__).with_name("faults.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.server", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "LD_PRELOAD": str(library)},
        )
        try:
            yield Commands(process, Path(scratch))
        finally:
            process.stdin.close()
            process.wait()


@dataclass(frozen=True)
class Scene:
    """A command that keeps something.

    Attributes:
        before: commands that make what it begins with, in a folder that has the scene's files.
        command: what is failed.
        state: what a reader sees, in a folder.
        again: the command of the next run, where it is another.
        repeats: whether it may also be given after one that was done, which then changes nothing or is refused.
        settle: commands that come after that.
        most: of the changes so many are failed, evenly spread.
    """

    command: Sequence[object]
    state: Callable[[Path], Any]
    before: Sequence[Sequence[object]] = ()
    settle: Sequence[Sequence[object]] = ()
    again: Sequence[object] = ()
    repeats: bool = True
    setup: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    says: str = ""
    passes: Sequence[Any] = ()
    most: int = 20


def check(commands, name, scene, files):
    """Fail changes of a command, and check what each leaves.

    Args:
        files: the folder that the scene begins with, before ``scene.before``.
    """
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        count, problems = _failures(commands, scene, files, Path(scratch))
    print(f"{name}: {count} failures, {len({each.split(':')[0] for each in problems})} wrong")
    assert not problems, "\n".join(problems)


def _failures(commands, scene, files, scratch):
    """How many changes of a command were failed, and what was wrong after which."""

    def run(folder, *arguments, **fault):
        return commands(folder, *arguments, setup=scene.setup, environment=scene.environment, **fault)

    def begun(name, source):
        shutil.copytree(source, scratch / name, symlinks=True)
        return scratch / name

    before = begun("before", files)
    for arguments in scene.before:
        made = run(before, *arguments)
        assert made.status == 0, made.err
    whole = begun("whole", before)
    done = run(whole, *scene.command)
    assert done.status == 0, done.err
    first, last = scene.state(before), scene.state(whole)
    assert first != last
    again = scene.again or scene.command
    for arguments in scene.repeats * [again] + [*scene.settle]:
        settled = run(whole, *arguments)
        assert settled.status == 0 or arguments == again, settled.err
    settled_state, left = scene.state(whole), _names(whole)
    count = done.changes if EVERY else min(done.changes, scene.most)
    points = np.unique(np.linspace(1, done.changes, count).round().astype(int)).tolist()
    problems = []
    for mode, what in ((KILL, "killed"), (FULL, "disk full")):
        for point in points:
            folder = begun("now", before)
            ended = run(folder, *scene.command, at=point, mode=mode)
            found = []
            try:
                state = scene.state(folder)
                if state not in (first, last, *scene.passes):
                    found.append(f"the state is neither: {state}")
                found += _wrong_end(ended, mode, scene.says if state == last else None)
                runs = [again] if state != last or scene.repeats else []
                for arguments in [*runs, *scene.settle]:
                    following = run(folder, *arguments)
                    if following.status and not (state == last and arguments == again and following.status == 2):
                        found.append(f"{arguments[:3]} ends with {following.status}: {following.err}")
                        break
                else:
                    if scene.state(folder) != settled_state:
                        found.append(f"the state in the end is {scene.state(folder)}")
                    if differ := _names(folder) ^ left:
                        found.append(f"left or missing in the end: {sorted(differ)[:3]}")
            except Exception as error:  # whatever a reader raises is a finding
                found.append(f"reading: {type(error).__name__}: {error}")
            problems += [f"change {point}, {what}: {each}" for each in found]
            shutil.rmtree(folder)
    return 2 * len(points), problems


def _wrong_end(ended, mode, says):
    """What is wrong with the exit status and the message of a command that failed.

    Args:
        says: what the message has to say of what was done; None if it was not.
    """
    if mode == KILL:
        return [] if ended.status == KILLED else [f"was not killed but ended with {ended.status}"]
    if ended.status == 0:
        return ["ends with 0, and it is not done"] if says is None else []
    if ended.status != 2 or "No space left on device" not in ended.err or (says or "") not in ended.err:
        return [f"ends with {ended.status}: {ended.err.strip()}"]
    return []


def _names(folder):
    names = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return {name for name in names if not any(each in name for each in IGNORED)}
