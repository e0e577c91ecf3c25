"""A separate process that reads hostile files, so that a crash, a bomb or a hang is only an outcome.

The process measures itself: processor time, and the peak of its resident memory above what it held before the case
(``/proc/self/clear_refs`` resets the peak; Linux only). Its address space is limited, and the parent kills it when a
case takes far longer than it may.
"""

import multiprocessing
import os
import resource
import shutil
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from facerts.errors import Error
from tests.hostile.readers import READERS

MAX_SECONDS = 5.0
MAX_MIB = 1024
# Beyond what a case may use, so that excess memory is measured rather than just refused.
ADDRESS_SPACE = 2 << 30
# Wall time; generous, since other work may take most of the machine.
KILL_AFTER = 120.0
# Time for starting a process and importing the readers.
START = 300.0

READ, REFUSED = "read", "refused"
ESCAPED, DIED, SLOW, LARGE = "escaped exception", "died", "too slow", "too large"


class Outcome(NamedTuple):
    """The outcome of a case.

    Attributes:
        kind: ``READ`` and ``REFUSED`` are fine; anything else is a failure.
        text: the error message or the traceback.
        seconds: processor time.
        mebibytes: peak of resident memory above that before the case.
    """

    kind: str
    text: str = ""
    seconds: float = 0.0
    mebibytes: float = 0.0

    @property
    def failed(self):
        """Whether the reader failed."""
        return self.kind not in (READ, REFUSED)


class Sandbox:
    """Reads cases in a process that is restarted whenever it dies.

    Args:
        read: reads a file, or a folder with a case's files; a function that another process can import.
        first: a case that can be read, so that imports and caches do not count as another's memory.
        memory: bytes that the process may allocate on top of those it has then.
        seconds: processor time for a case.
        preload: module that the fork server imports once, so that starting a sandbox's process is fast.
    """

    def __init__(self, read, first=None, *, memory=ADDRESS_SPACE, seconds=MAX_SECONDS, preload=__name__):
        self._arguments = read, first, memory, seconds
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([preload])
        self._process = None
        self._connection = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self._end()

    def run(self, case):
        """Read a path, or a folder with files given by their names."""
        connection = self._started()
        connection.send(case)
        if not connection.poll(KILL_AFTER):
            self._end()
            return Outcome(SLOW, f"killed after {KILL_AFTER:.0f} s", KILL_AFTER)
        try:
            outcome = connection.recv()
        except EOFError:
            self._process.join()
            status = self._process.exitcode
            self._end()
            return Outcome(DIED, f"exit status {status}")
        return outcome

    def _started(self):
        if self._connection is None:
            self._connection, theirs = self._context.Pipe()
            self._process = self._context.Process(target=_serve, args=(theirs, *self._arguments), daemon=True)
            self._process.start()
            theirs.close()
            if not self._connection.poll(START):
                raise RuntimeError("the reading process did not start")
            first = self._connection.recv()
            if first.kind != READ:
                raise RuntimeError(f"the first files cannot be read: {first.kind}: {first.text}")
        return self._connection

    def _end(self):
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None


def read_bounded(kind, paths, *, memory=1 << 30, seconds=60):
    """The error message of each file; an empty string for a file that was read.

    Args:
        kind: kind of the files; see ``readers.READERS``.
        memory: bytes that the process may allocate on top of its imports.
        seconds: processor time for all files together.

    Raises:
        AssertionError: an exception that is not the project's own escapes, or the process dies.
    """
    with Sandbox(READERS[kind], memory=memory, seconds=seconds) as sandbox:
        outcomes = {path: sandbox.run(path) for path in paths}
    failed = {path.name: outcome for path, outcome in outcomes.items() if outcome.failed}
    assert not failed, failed
    assert sum(outcome.seconds for outcome in outcomes.values()) < seconds
    return {path: outcome.text for path, outcome in outcomes.items()}


def _serve(connection, read, first, memory, seconds):
    folder = Path(tempfile.mkdtemp(prefix="facerts-fuzz-"))
    # Silence the libraries' complaints about broken files.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        connection.send(Outcome(READ) if first is None else _measured(read, folder, first, seconds))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
        while True:
            connection.send(_measured(read, folder, connection.recv(), seconds))
    except EOFError:
        pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(read, folder, case, max_seconds):
    if isinstance(case, dict):
        for path in folder.iterdir():
            path.unlink()
        for name, content in case.items():
            (folder / name).write_bytes(content)
    before = _resident_kib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    begin = time.process_time()
    kind, text = READ, ""
    try:
        read(folder if isinstance(case, dict) else case)
    except Error as error:
        # An error because memory ran out is not a deliberate refusal.
        kind, text = (LARGE if _out_of_memory(str(error)) else REFUSED), str(error)
    except Exception:
        kind, text = ESCAPED, traceback.format_exc()
    seconds = time.process_time() - begin
    mebibytes = max(0, _resident_kib("VmHWM") - before) / 1024
    if kind in (READ, REFUSED) and mebibytes > MAX_MIB:
        kind = LARGE
    elif kind in (READ, REFUSED) and seconds > max_seconds:
        kind = SLOW
    return Outcome(kind, text, seconds, mebibytes)


def _resident_kib(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")


def _out_of_memory(text):
    return any(words in text.lower() for words in ("insufficient memory", "unable to allocate", "out of memory"))
