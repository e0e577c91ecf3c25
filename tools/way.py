"""Count what a photo passes through: the functions of facerts that run, their files, and the lines of these files.

    python tools/way.py photo.jpg --detector yunet.onnx

The first number is of `scorer.score` for a photo after the first, the second of the command `facerts score`. Functions
without a name of their own, and the bodies of classes and modules, which an import runs, do not count.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import facerts

PACKAGE = Path(facerts.__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("photo", help="an image file")
    parser.add_argument("--detector", default="auto", help="name or file of the detector (default: auto)")
    parser.add_argument("--list", action="store_true", help="also print the functions by file")
    options = parser.parse_args()
    scorer = facerts.load(detector=options.detector)
    scorer.score(options.photo)
    show("scorer.score", functions_run(lambda: scorer.score(options.photo)), listed=options.list)

    def command() -> None:
        from facerts.cli.app import main as facerts_main

        sys.argv = ["facerts", "score", options.photo, "--set", f"detector={options.detector}"]
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
            facerts_main()

    show("facerts score", functions_run(command), listed=options.list)


def functions_run(call: Callable[[], Any]) -> Counter[str]:
    """Number of the package's functions that a call runs, in all threads, by file."""
    seen: set[tuple[str, int]] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and PACKAGE in Path(code.co_filename).parents:
            seen.add((code.co_filename, code.co_firstlineno))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return Counter(file for file, _ in seen)


def show(name: str, functions: Counter[str], *, listed: bool) -> None:
    lines = sum(len(Path(file).read_text().splitlines()) for file in functions)
    print(f"{name}: {functions.total()} functions in {len(functions)} files of {lines:,} lines")
    for file, count in sorted(functions.items()) if listed else ():
        print(f"  {count:3d} {Path(file).relative_to(PACKAGE)}")


if __name__ == "__main__":
    main()
