"""A separate process that reads hostile files, so that a crash, a bomb or a hang is only an outcome.

The process measures itself: processor time, and the peak of its resident memory above what it held before the case
(``/proc/self/clear_refs`` resets the peak; Linux only). Its address space is limited to somewhat more than a case may
use, and the parent kills it when a case takes far longer than it may.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from facerts.errors import Error

Files = dict[str, bytes]
Read = Callable[[Path], None]

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
        read: reads a folder with a case's files; a function that another process can import.
        first: files that can be read.
        kill_after: wall time for a case, in seconds.
        preload: module that the fork server imports once, so that starting a sandbox's process is fast.
    """

    def __init__(self, read, first, *, kill_after=KILL_AFTER, preload=__name__):
        self._read, self._first, self._kill_after = read, first, kill_after
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([preload])
        self._process = None
        self._connection = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self._end()

    def run(self, files):
        """Read a folder with the given files."""
        connection = self._started()
        connection.send(files)
        if not connection.poll(self._kill_after):
            self._end()
            return Outcome(SLOW, f"killed after {self._kill_after:.0f} s", self._kill_after)
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
            arguments = (self._read, self._first, theirs)
            self._process = self._context.Process(target=_serve, args=arguments, daemon=True)
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


def _serve(read, first, connection):
    folder = Path(tempfile.mkdtemp(prefix="facerts-fuzz-"))
    # Silence the libraries' complaints about broken files.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        # Imports and caches must not count as a case's memory.
        connection.send(_measured(read, folder, first))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE, used + ADDRESS_SPACE))
        while True:
            connection.send(_measured(read, folder, connection.recv()))
    except EOFError:
        pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(read, folder, files):
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    before = _resident_kib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    begin = time.process_time()
    kind, text = READ, ""
    try:
        read(folder)
    except Error as error:
        # An error because memory ran out is not a deliberate refusal.
        kind, text = (LARGE if _out_of_memory(str(error)) else REFUSED), str(error)
    except Exception:
        kind, text = ESCAPED, traceback.format_exc()
    seconds = time.process_time() - begin
    mebibytes = max(0, _resident_kib("VmHWM") - before) / 1024
    if kind in (READ, REFUSED) and mebibytes > MAX_MIB:
        kind = LARGE
    elif kind in (READ, REFUSED) and seconds > MAX_SECONDS:
        kind = SLOW
    return Outcome(kind, text, seconds, mebibytes)


def _resident_kib(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")


def _out_of_memory(text):
    return any(words in text.lower() for words in ("insufficient memory", "unable to allocate", "out of memory"))
