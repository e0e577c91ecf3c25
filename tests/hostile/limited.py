"""Decode images in separate processes with limited time and memory, and measure what each took."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from facerts.errors import ImageError
from facerts.images import decode

# Far above what an image may cost, so that one that costs too much can still be measured.
MAX_SECONDS = 20
MAX_BYTES = 4 << 30


class Outcome(NamedTuple):
    """The result of decoding an image.

    Attributes:
        shape: of the decoded image; None if it was not decoded.
        error: why the image was refused, or how the process ended.
        seconds: of processor time.
        peak: bytes of memory, about 50 MB for the interpreter and its libraries included.
    """

    shape: list[int] | None
    error: str | None
    seconds: float
    peak: int


def decode_all(images: Mapping[str, bytes]) -> dict[str, Outcome]:
    """Decode each image in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in images.items():
            (Path(folder) / name).write_bytes(data)
        command = [sys.executable, "-m", "tests.hostile.limited", folder]
        ran = subprocess.run(
            command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True, check=True
        )
    return {name: Outcome(*fields) for name, *fields in map(json.loads, ran.stdout.splitlines())}


def _decode(path: Path) -> Outcome:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
        try:
            result = {"shape": decode(path.read_bytes(), where=path.name).shape}
        except ImageError as error:
            result = {"error": str(error)}
        os.write(writing, json.dumps(result).encode())
        os._exit(0)
    os.close(writing)
    _, status, used = os.wait4(child, 0)
    with open(reading, "rb") as pipe:
        result = json.loads(pipe.read() or json.dumps({"error": f"ended with status {status}"}))
    seconds = used.ru_utime + used.ru_stime
    return Outcome(result.get("shape"), result.get("error"), seconds, used.ru_maxrss << 10)


if __name__ == "__main__":
    for path in sorted(Path(sys.argv[1]).iterdir()):
        print(json.dumps([path.name, *_decode(path)]))
