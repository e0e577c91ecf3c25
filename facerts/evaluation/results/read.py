"""Results from files that anybody may have written."""

from __future__ import annotations

import math
from typing import Any

from pydantic import ValidationError

from facerts.errors import DataError
from facerts.evaluation.results.result import SCHEMA, Result

# Far beyond any result: what a file holds must not decide how long a table or a figure takes.
MAX_DEPTH = 20
MAX_NAMES = 1000
MAX_NUMBERS = 100_000
MAX_SHOWN = 200


def parse_result(content: Any, where: object) -> Result:
    """A result from what a JSON file holds."""
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise DataError(f"{where}: not a result in the format {SCHEMA}")
    _check_bounds(content, where, ())
    try:
        return Result.model_validate(content)
    except ValidationError as error:
        raise DataError(f"{where}: {_first_problem(error)}; evaluate again") from error


def _check_bounds(value: Any, where: object, path: tuple[object, ...]) -> None:
    """Hold nesting, lengths and finiteness of all values, known or not, against what any result has."""
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{where}: {_key(path)} is {value}, not a finite number")
    if len(path) > MAX_DEPTH:
        raise DataError(f"{where}: {_key(path)} is nested deeper than any result")
    if isinstance(value, dict):
        _check_length(len(value), MAX_NAMES, where, path)
        for name, entry in value.items():
            _check_bounds(entry, where, (*path, name))
    elif isinstance(value, list):
        _check_length(len(value), MAX_NUMBERS, where, path)
        for number, entry in enumerate(value):
            _check_bounds(entry, where, (*path, number))


def _check_length(length: int, maximum: int, where: object, path: tuple[object, ...]) -> None:
    if length > maximum:
        raise DataError(f"{where}: {_key(path)} has {length:,} entries, more than any result")


def _first_problem(error: ValidationError) -> str:
    """Which key is wrong, and what about it."""
    problem = error.errors(include_url=False, include_input=False)[0]
    key = _key(problem["loc"])
    if problem["type"] == "missing":
        return f"{key} is missing"
    reason = problem["msg"].removeprefix("Value error, ")
    return f"{key}: {reason[:1].lower()}{reason[1:]}"


def _key(path: tuple[object, ...]) -> str:
    """``verification.lfw.auroc``, cut where names are endless; "the file" for all of it."""
    key = ".".join(map(str, path)) or "the file"
    return key if len(key) <= MAX_SHOWN else f"{key[:MAX_SHOWN]}…"
