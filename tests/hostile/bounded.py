"""Files read in a process whose memory and time are bounded, so that what a file asks for can harm nobody else."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEMORY = 1 << 30
SECONDS = 60


def read_bounded(
    kind: str, paths: Sequence[Path], *, memory: int = MEMORY, seconds: int = SECONDS
) -> dict[Path, str]:
    """The sentence with which each file is refused; nothing where it is read.

    Args:
        kind: of the files; see ``readers.READERS``.
        paths: of the files.
        memory: bytes that the process may take beside what it has when all is imported.
        seconds: of processor time for all files.

    Raises:
        AssertionError: another error than the project's own escapes, or the process ends.
    """
    ended = subprocess.run(
        [sys.executable, "-m", __name__, kind, str(memory), str(seconds), *map(str, paths)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(told) == len(paths), (paths[len(told)], ended.returncode, ended.stderr)
    escaped = {path.name: kind for path, (kind, _) in zip(paths, told, strict=True) if kind}
    assert not escaped, (escaped, ended.stderr)
    return {path: sentence for path, (_, sentence) in zip(paths, told, strict=True)}


def hold_memory(more: int) -> None:
    """Let this process have so many bytes beside those that it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(kind: str, memory: str, seconds: str, *paths: str) -> None:
    import traceback

    from facerts.errors import Error
    from tests.hostile.readers import READERS

    hold_memory(int(memory))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    for path in paths:
        escaped, sentence = "", ""
        try:
            READERS[kind](Path(path))
        except Error as error:
            sentence = str(error)
        except Exception as error:
            traceback.print_exc(limit=-6)
            escaped = type(error).__name__
        print(json.dumps([escaped, sentence]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
