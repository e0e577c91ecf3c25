"""Errors of commands: a message on standard error and an exit status, with a traceback on request."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from facerts.cli.output import (
    EXIT_BROKEN_PIPE,
    EXIT_INTERRUPTED,
    EXIT_NON_FINITE,
    EXIT_UNEXPECTED,
    EXIT_UNUSABLE,
    print_error,
)
from facerts.errors import Error, NonFiniteLossError, first_line, install_hint
from facerts.io.console import printable

DEBUG_VARIABLE = "FACERTS_DEBUG"
# Optional packages. Module name: (names on the package index, extra of facerts that installs them, what needs them).
OPTIONAL: dict[str, tuple[tuple[str, ...], str, str]] = {
    "onnxruntime": (
        ("onnxruntime", *(f"onnxruntime-{kind}" for kind in ("gpu", "openvino", "migraphx", "rocm"))),
        "use",
        "score, verify, galleries, people",
    ),
    "PIL": (("pillow",), "use", "HEIC and other image formats"),
    "pillow_heif": (("pillow-heif",), "use", "HEIC and other image formats"),
    "pyarrow": (("pyarrow",), "use", "Parquet"),
    "faiss": (("faiss-cpu",), "use", "search among many faces"),
    "ray": (("ray",), "ray", "scoring with Ray"),
    "av": (("av",), "use", "video"),
    "scipy": (("scipy",), "use", "video"),
    "matplotlib": (("matplotlib",), "use", "reports"),
    "sklearn": (("scikit-learn",), "use", "scikit-learn's pipelines"),
    "torch": (("torch",), "train", "training"),
    "onnx": (("onnx",), "use", "training"),
    "onnxscript": (("onnxscript",), "train", "training"),
    "tensorboard": (("tensorboard",), "train", "training"),
    "fastapi": (("fastapi",), "serve", "serve"),
    "uvicorn": (("uvicorn",), "serve", "serve"),
    "prometheus_client": (("prometheus-client",), "serve", "serve"),
}


@contextmanager
def ending() -> Iterator[None]:
    """If the block raises an error, report it and exit with its status."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(report_error(error))


def report_error(error: BaseException) -> int:
    """Print why a command failed, and return its exit status."""
    if isinstance(error, BrokenPipeError):
        # Nobody reads the remaining output, so Python must not try to flush it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    if isinstance(error, KeyboardInterrupt):
        print_error(str(error) or "interrupted")
        return EXIT_INTERRUPTED
    if os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"):
        sys.stderr.write(printable("".join(traceback.format_exception(error)), keep="\n"))
    if isinstance(error, Error):
        print_error(error)
        return EXIT_NON_FINITE if isinstance(error, NonFiniteLossError) else EXIT_UNUSABLE
    if isinstance(error, ModuleNotFoundError) and (needed := OPTIONAL.get((error.name or "").split(".")[0])):
        print_error(f"this command needs {error.name}, which is not installed: {install_hint(needed[1])}")
        return EXIT_UNUSABLE
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        print_error(f"{where}{error.strerror}")
        return EXIT_UNUSABLE
    if isinstance(error, MemoryError):
        print_error(f"not enough memory ({first_line(error)}); process fewer images at a time, or use a larger machine")
        return EXIT_UNUSABLE
    print_error(
        f"unexpected {type(error).__name__} ({first_line(error)}); this is a bug in facerts: please report it with the "
        f"output of {DEBUG_VARIABLE}=1"
    )
    return EXIT_UNEXPECTED
