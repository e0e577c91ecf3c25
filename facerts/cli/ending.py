"""How a command ends: a sentence on standard error and an exit status for every error, a traceback for who asks."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from facerts.cli.extras import advice
from facerts.cli.output import (
    EXIT_BROKEN_PIPE,
    EXIT_INTERRUPTED,
    EXIT_NON_FINITE,
    EXIT_UNFORESEEN,
    EXIT_UNUSABLE,
    print_error,
)
from facerts.errors import Error, NonFiniteLossError, first_line

DEBUG_VARIABLE = "FACERTS_DEBUG"


@contextmanager
def ending() -> Iterator[None]:
    """End the process with a sentence and a status where the block ends with an error."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(tell(error))


def tell(error: BaseException) -> int:
    """Say why a command ended, and give its exit status."""
    if isinstance(error, BrokenPipeError):
        # Nobody reads what is still to be written, so Python must not try it when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    if isinstance(error, KeyboardInterrupt):
        print_error("interrupted")
        return EXIT_INTERRUPTED
    if debugging():
        traceback.print_exception(error)
    if isinstance(error, Error):
        print_error(error)
        return EXIT_NON_FINITE if isinstance(error, NonFiniteLossError) else EXIT_UNUSABLE
    if isinstance(error, ModuleNotFoundError) and (how := advice(error.name or "")):
        print_error(f"this command needs {error.name}, which is not installed: {how}")
        return EXIT_UNUSABLE
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        print_error(f"{where}{error.strerror}")
        return EXIT_UNUSABLE
    if isinstance(error, MemoryError):
        print_error(
            f"there is not enough memory ({first_line(error)}); give less at a time, or a larger machine"
        )
        return EXIT_UNUSABLE
    print_error(
        f"unforeseen, {type(error).__name__} ({first_line(error)}); this is a defect of facerts: report it with what "
        f"{DEBUG_VARIABLE}=1 shows"
    )
    return EXIT_UNFORESEEN


def debugging() -> bool:
    """Whether errors are shown with the place where they happened."""
    return os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")
