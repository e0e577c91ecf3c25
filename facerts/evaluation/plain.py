"""What a result must be before anything is made of it, whoever wrote it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from facerts.errors import DataError, Error

# Far beyond any result: what a file holds must not decide how long a table or a figure takes.
DEEPEST = 20
MOST_NAMES = 1000
MOST_RATES = 50
MOST_NUMBERS = 100_000

NAMED = ("verification", "reject", "calibration", "identification", "ladder")


def check_result(content: dict[str, Any], where: object) -> None:
    """Hold a result against the outline of ``docs/results-schema.md``.

    Raises:
        DataError: it names no model, a section is of another form, or there is more of something than any result has.
    """
    _check_plain(content, str(where), 0)
    model = content.get("model")
    if not isinstance(model, dict) or not all(
        isinstance(model.get(key), str) for key in ("name", "sha256", "method")
    ):
        raise DataError(f"{where}: it does not say whose result it is (model: name, sha256, method)")
    commands = content.get("command", [])
    if not isinstance(commands, list) or not all(
        isinstance(command, list) and command and all(isinstance(word, str) for word in command)
        for command in commands
    ):
        raise DataError(f"{where}: command is to be lists of words")
    for kind in (*NAMED, "ood"):
        section = content.get(kind, {})
        forms = [section] if kind == "ood" else [section, *_entries(section)]
        if not all(
            isinstance(form, list if kind == "reject" and form is not section else dict) for form in forms
        ):
            raise DataError(f"{where}: section {kind!r} is not as docs/results-schema.md has it")


@contextmanager
def results_of(folders: Sequence[object]) -> Iterator[None]:
    """Name the results whose numbers are not as ``docs/results-schema.md`` has them.

    Hundreds of them are looked up for tables and figures; that one is missing or odd shows where it is used.

    Args:
        folders: of the results that the block reads.

    Raises:
        DataError: the block cannot make anything of them.
    """
    try:
        yield
    except (Error, OSError, MemoryError):
        raise
    except Exception as error:
        raise DataError(
            f"{', '.join(map(str, folders))}: not all is there, or as docs/results-schema.md has it "
            f"({type(error).__name__}: {error}); evaluate again"
        ) from error


def _entries(section: Any) -> list[Any]:
    return list(section.values()) if isinstance(section, dict) else []


def _check_plain(value: Any, where: str, depth: int) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{where}: {value} is not a finite number")
    if depth > DEEPEST:
        raise DataError(f"{where}: it is nested deeper than any result")
    if isinstance(value, dict):
        for name, entry in value.items():
            _check_length(entry, f"{where}: {name}", MOST_RATES if name == "tar_at_far" else MOST_NAMES)
            _check_plain(entry, where, depth + 1)
    elif isinstance(value, list):
        for entry in value:
            _check_plain(entry, where, depth + 1)


def _check_length(value: Any, where: str, names: int) -> None:
    if (isinstance(value, dict) and len(value) > names) or (
        isinstance(value, list) and len(value) > MOST_NUMBERS
    ):
        raise DataError(f"{where} has {len(value):,} entries, more than any result")
