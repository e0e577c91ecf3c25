"""JSON from untrusted files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from facerts.errors import DataError, Error


def read_json(path: Path, *, error: type[Error] = DataError) -> Any:
    """Read a JSON file.

    Raises:
        Error: as the class given: the file cannot be read or is not JSON.
    """
    try:
        content = path.read_bytes()
    except OSError as reason:
        raise error(f"{path}: cannot be read ({reason.strerror})") from reason
    return parse_json(content, path, error=error)


def parse_json(text: str | bytes, where: object, *, error: type[Error] = DataError) -> Any:
    """Parse a JSON text.

    Raises:
        Error: as the class given: the text is not JSON.
    """
    try:
        return json.loads(text)
    except RecursionError as reason:
        raise error(f"{where}: not valid JSON (it is nested too deep)") from reason
    except ValueError as reason:
        raise error(f"{where}: not valid JSON ({reason})") from reason
