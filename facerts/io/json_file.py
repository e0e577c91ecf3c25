"""JSON from files that anybody may have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from facerts.errors import DataError, Error


def read_json(path: Path, *, error: type[Error] = DataError) -> Any:
    """What a JSON file holds.

    Args:
        path: of the file.
        error: to raise.

    Raises:
        Error: of that type; the file cannot be read, or is not JSON.
    """
    try:
        content = path.read_bytes()
    except OSError as reason:
        raise error(f"{path}: cannot be read ({reason.strerror})") from reason
    return parse_json(content, path, error=error)


def parse_json(text: str | bytes, where: object, *, error: type[Error] = DataError) -> Any:
    """What a JSON text holds.

    Args:
        text: as text, or encoded.
        where: it comes from, for the error.
        error: to raise.

    Raises:
        Error: of that type; it is not JSON.
    """
    try:
        return json.loads(text)
    except RecursionError as reason:
        raise error(f"{where}: not valid JSON (it is nested too deep)") from reason
    except ValueError as reason:
        raise error(f"{where}: not valid JSON ({reason})") from reason
