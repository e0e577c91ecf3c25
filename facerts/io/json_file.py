"""JSON: from untrusted files, and in a form that is safe to print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from facerts.errors import DataError, Error
from facerts.io.files import read_file, reading


def json_text(value: Any, *, indent: int | None = None) -> str:
    """A value as JSON, with control characters as escapes and all other characters as they are."""
    lines = json.dumps(value, ensure_ascii=False, indent=indent).split("\n")
    return "\n".join(line if line.isprintable() else _escaped(line) for line in lines)


def _escaped(text: str) -> str:
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    with reading(path):
        return parse_json(read_file(path), path)


def parse_json(text: str | bytes, where: object, *, error: type[Error] = DataError) -> Any:
    """Parse a JSON text."""
    try:
        return json.loads(text)
    except RecursionError as reason:
        raise error(f"{where}: not valid JSON (it is nested too deep)") from reason
    except ValueError as reason:
        raise error(f"{where}: not valid JSON ({reason})") from reason
