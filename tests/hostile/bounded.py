"""Read files in a process with limited memory and time, so that a hostile file can do no harm."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEMORY = 1 << 30
SECONDS = 60


def read_bounded(kind, paths, *, memory=MEMORY, seconds=SECONDS):
    """The error message of each file; an empty string for a file that was read.

    Args:
        kind: kind of the files; see ``readers.READERS``.
        paths: the files.
        memory: bytes that the process may allocate on top of its imports.
        seconds: processor time for all files together.

    Raises:
        AssertionError: an exception that is not the project's own escapes, or the process dies.
    """
    ended = subprocess.run(
        [sys.executable, "-m", __name__, kind, str(memory), str(seconds), *map(str, paths)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    results = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(results) == len(paths), (paths[len(results)], ended.returncode, ended.stderr)
    escaped = {path.name: kind for path, (kind, _) in zip(paths, results, strict=True) if kind}
    assert not escaped, (escaped, ended.stderr)
    return {path: message for path, (_, message) in zip(paths, results, strict=True)}


def limit_memory(more):
    """Limit this process to ``more`` bytes on top of those it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(kind, memory, seconds, *paths):
    import traceback

    from facerts.errors import Error
    from tests.hostile.readers import READERS

    limit_memory(int(memory))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    for path in paths:
        escaped, message = "", ""
        try:
            READERS[kind](Path(path))
        except Error as error:
            message = str(error)
        except Exception as error:
            traceback.print_exc(limit=-6)
            escaped = type(error).__name__
        print(json.dumps([escaped, message]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
