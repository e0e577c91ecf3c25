"""Shared by the bench_* scripts: options, alternating rounds, medians with ranges, processes of their own, services."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from facerts.datasets.synthetic import draw_face
from facerts.images import encode_jpeg

# Runs a function of a script without running the script.
CALL = """
import json, runpy, sys
script, function, arguments = json.loads(sys.argv[1])
print(json.dumps(runpy.run_path(script)[function](*arguments)))
"""


def parser_of(
    docstring: str | None, options: Mapping[str, tuple[Any, str]], *, rounds: int | None = None
) -> argparse.ArgumentParser:
    """A parser whose help begins with the script's docstring; with ``--rounds`` where a default is given.

    Args:
        docstring: of the script.
        options: of each option the default, or the type where there is none, and the help; a list takes several values.
        rounds: the default.
    """
    parser = argparse.ArgumentParser(description=docstring, formatter_class=argparse.RawTextHelpFormatter)
    if rounds is not None:
        options = {**options, "--rounds": (rounds, "rounds to measure")}
    for name, (default, text) in options.items():
        if default is False:
            parser.add_argument(name, action="store_true", help=text)
        elif isinstance(default, type):
            parser.add_argument(name, type=default, help=text)
        else:
            several = isinstance(default, list)
            kind, nargs = (type(default[0]), "+") if several else (type(default), None)
            help_text = f"{text} (default: {' '.join(map(str, default)) if several else default})"
            parser.add_argument(name, type=kind, nargs=nargs, default=default, help=help_text)
    return parser


def machine() -> str:
    """Cores and load, without which no duration says anything."""
    return f"{len(os.sched_getaffinity(0))} cores, load average {os.getloadavg()[0]:.2f}"


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def alternate(candidates: Mapping[str, Callable[[], Any]], rounds: int, *, warm_up: int = 1) -> dict[str, list[Any]]:
    """What each candidate returns in each round, or its seconds where it returns None.

    The candidates take turns, in changing order, so that what else the machine does meets all of them alike.
    """
    taken: dict[str, list[Any]] = {name: [] for name in candidates}
    for turn in range(rounds + warm_up):
        for name in candidates if turn % 2 == 0 else reversed(list(candidates)):
            began = time.perf_counter()
            result = candidates[name]()
            seconds = time.perf_counter() - began
            if turn >= warm_up:
                taken[name].append(seconds if result is None else result)
    return taken


def spread(values: Sequence[float], form: str = ",.2f") -> str:
    """Median, and the lowest to the highest."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def with_quartiles(values: Sequence[float], form: str = ".2f") -> str:
    """Median, and the lower to the upper quartile."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else [*values] * 3
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


def ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Round by round."""
    return [value / other for value, other in zip(values, others, strict=True)]


def in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of a script returns in a process of its own; arguments and result are such that JSON has.

    Raises:
        subprocess.CalledProcessError: it failed; why is on standard error, too.
    """
    script = Path(function.__code__.co_filename).resolve()
    request = json.dumps([str(script), function.__name__, arguments])
    path = os.pathsep.join([str(script.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", CALL, request],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    done.check_returncode()
    return json.loads(done.stdout.splitlines()[-1])


def peak_mib() -> float:
    """Peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_faces(folder: Path, count: int) -> Path:
    """Synthetic faces as JPEG files."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:07d}.jpg").write_bytes(encode_jpeg(draw_face(number, 0)))
    return folder


@contextmanager
def service(options: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Process and port of a service that runs in a process of its own."""
    command = [sys.executable, "-m", "facerts", "serve", "--port", "0", *options]
    environment = {key: value for key, value in os.environ.items() if key != "FACERTS_TOKEN"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        line = ""
        for line in process.stderr:
            if listening := re.search(r"listening on http://\S+:(\d+)/", line):
                break
        else:
            raise SystemExit(f"{' '.join(command)} ended without listening: {line}")
        # Nobody reads its log, so it must not fill the pipe.
        subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        yield process.pid, int(listening[1])
    finally:
        process.terminate()
        process.wait()


def score_request(
    body: bytes, *, kind: str = "application/octet-stream", more: str = "", size: int | None = None
) -> bytes:
    """A request to score, which may claim another size than its body has."""
    lines = (
        "POST /v1/score HTTP/1.1",
        f"Host: localhost{more}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body) if size is None else size}",
    )
    return "\r\n".join([*lines, "", ""]).encode() + body


async def read_status(reader: asyncio.StreamReader) -> str:
    """The status of an answer, which is read to its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    if length := re.search(rb"content-length: (\d+)", head):
        await reader.readexactly(int(length[1]))
    return head.split(b" ", 2)[1].decode()
