"""Shared by the scripts that measure: options, alternating rounds, medians with ranges, processes of their own."""

from __future__ import annotations

import argparse
import inspect
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

# Of each option the default, or the type where there is none, and the help; a list takes several values.
Options = Mapping[str, tuple[Any, str]]
# Runs a function of a script without running the script.
CALL = """
import json, runpy, sys
script, function, arguments = json.loads(sys.argv[1])
print(json.dumps(runpy.run_path(script)[function](*arguments)))
"""


def parser_of(docstring: str | None, options: Options) -> argparse.ArgumentParser:
    """A parser whose help begins with the script's docstring."""
    parser = argparse.ArgumentParser(description=docstring, formatter_class=argparse.RawTextHelpFormatter)
    add_options(parser, options)
    return parser


def add_options(parser: argparse.ArgumentParser, options: Options) -> None:
    for name, (default, text) in options.items():
        if default is False:
            parser.add_argument(name, action="store_true", help=text)
            continue
        several = {"nargs": "+"} if isinstance(default, list) else {}
        one = default[0] if several else default
        if isinstance(one, type):
            parser.add_argument(name, type=one, help=text, **several)
        else:
            help_text = f"{text} (default: {' '.join(map(str, default)) if several else default})"
            parser.add_argument(name, type=type(one), default=default, help=help_text, **several)


def run_benchmark(docstring: str | None, benchmarks: Mapping[Callable[..., Any], Options]) -> None:
    """Run the function that the first argument names, with its options; what it returns goes to the file of --json."""
    parser = parser_of(docstring, {})
    commands = parser.add_subparsers(metavar="BENCHMARK", required=True)
    for function, options in benchmarks.items():
        text = inspect.cleandoc(function.__doc__ or "")
        command = commands.add_parser(
            function.__name__,
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawTextHelpFormatter,
        )
        command.set_defaults(function=function)
        add_options(command, options)
    given = vars(parser.parse_args())
    path = given.pop("json", None)
    result = given.pop("function")(**given)
    if path is not None:
        path.write_text(json.dumps(result))


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
