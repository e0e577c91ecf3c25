"""Shared by the bench_* scripts: arguments, alternating rounds, medians with ranges, processes of their own."""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from facerts.datasets.synthetic import draw_face
from facerts.images import encode_jpeg


def parser_of(docstring: str | None, *, rounds: int | None = None) -> argparse.ArgumentParser:
    """A parser whose help begins with the script's docstring; with ``--rounds`` where a default is given."""
    parser = argparse.ArgumentParser(description=docstring, formatter_class=argparse.RawTextHelpFormatter)
    if rounds is not None:
        parser.add_argument(
            "--rounds", type=int, default=rounds, help=f"Rounds to measure (default: {rounds})."
        )
    return parser


def machine() -> str:
    """Cores and load, without which no duration says anything."""
    return f"{len(os.sched_getaffinity(0))} cores, load average {os.getloadavg()[0]:.2f}"


def alternate(
    candidates: Mapping[str, Callable[[], Any]], rounds: int, *, warm_up: int = 1
) -> dict[str, list[Any]]:
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


def ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Round by round."""
    return [value / other for value, other in zip(values, others, strict=True)]


def in_process(script: str, arguments: Sequence[str]) -> Any:
    """The last line that a script prints in a process of its own, as JSON.

    Raises:
        subprocess.CalledProcessError: it failed; why is on standard error, too.
    """
    command = [sys.executable, script, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
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
