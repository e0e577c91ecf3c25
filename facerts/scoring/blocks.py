"""The rows of one block of pictures as a file that tells whether it is whole, and whether its pictures have changed.

Rows as JSON, a line each; a line with the block's number, how many rows there are, and size and time of the last change
of the files that the pictures were read from; and the SHA-256 of all this as the last line.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from facerts.datasets.source import Source
from facerts.errors import DataError
from facerts.io.files import atomic_write
from facerts.scoring.row import Row

# Bytes, and nanoseconds of the last change; None for a file that is not there.
State = tuple[int, int] | None


@dataclass(frozen=True)
class Block:
    """What is known of a block of pictures when it is finished.

    Attributes:
        rows: of the pictures, in their order.
        states: of their files when they were read, as ``states_of`` has them.
    """

    rows: list[Row]
    states: list[State]


def files_of(source: Source, span: range) -> list[Path]:
    """The files that hold some pictures of a source, each once, in the pictures' order."""
    files = dict.fromkeys(source.file_of(index) for index in span)
    return [file for file in files if file is not None]


def states_of(source: Source, span: range) -> list[State]:
    """The state of each of ``files_of``."""
    return [_state(file) for file in files_of(source, span)]


def write_block(path: Path, number: int, block: Block) -> None:
    """Write a block; when this returns it is on the disk."""
    lines = [json.dumps(asdict(row), ensure_ascii=False) for row in block.rows]
    lines.append(json.dumps({"block": number, "rows": len(block.rows), "states": block.states}))
    # Names of files may have bytes that are no characters; they are written as JSON has them.
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
    with atomic_write(path) as file:
        file.write(content + f"{_sha256(content)}\n".encode())


def check_block(path: Path, number: int) -> list[State]:
    """Find out whether a block is as it was written.

    Returns:
        The states of the pictures' files.

    Raises:
        DataError: it is not, or cannot be read.
    """
    _, facts = _lines(path, number)
    return [None if state is None else (state[0], state[1]) for state in facts["states"]]


def read_rows(path: Path, number: int) -> list[Row]:
    """The rows of a block.

    Raises:
        DataError: as ``check_block``.
    """
    return [Row(**json.loads(line)) for line in _lines(path, number)[0]]


def _lines(path: Path, number: int) -> tuple[list[bytes], dict[str, Any]]:
    """The lines of the rows, and what the line behind them says."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    body, _, checksum = content[:-1].rpartition(b"\n")
    if not content.endswith(b"\n") or checksum.decode("latin-1") != _sha256(body + b"\n"):
        raise DataError(f"{path}: broken, its contents are not those that were written")
    *lines, facts = body.split(b"\n")
    told = json.loads(facts)
    if told["block"] != number or told["rows"] != len(lines):
        raise DataError(f"{path}: broken, it is block {told['block']} with {len(lines)} rows")
    return lines, told


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _state(file: Path) -> State:
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        # Not there, or a name that no file can have: its picture has a row that says so.
        return None
    return found.st_size, found.st_mtime_ns
