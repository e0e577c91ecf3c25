"""The rows of one block of images as a file that shows whether it is complete and whether its images have changed.

The file has one line of JSON per row, then a line with the number of the block, its number of rows, and the size and
modification time of each file that the images were read from, and last the SHA-256 of everything before it.
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
from facerts.scoring.row import Row, row_from_json

# Size in bytes and modification time in nanoseconds; None for a missing file.
FileState = tuple[int, int] | None


@dataclass(frozen=True)
class Block:
    """A finished block of images."""

    rows: list[Row]
    states: list[FileState]


def block_files(source: Source, span: range) -> list[Path]:
    """The files that hold the images of a span, each once, in the order of the images."""
    files = dict.fromkeys(source.file_of(index) for index in span)
    return [file for file in files if file is not None]


def file_states(source: Source, span: range) -> list[FileState]:
    """The state of each of ``block_files``."""
    return [_file_state(file) for file in block_files(source, span)]


def write_block(path: Path, number: int, block: Block) -> None:
    """Write a block; when this returns it is on disk."""
    lines = [json.dumps(asdict(row), ensure_ascii=False) for row in block.rows]
    lines.append(json.dumps({"block": number, "rows": len(block.rows), "states": block.states}))
    # File names may contain bytes that are not valid text; these are written as JSON escapes.
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
    with atomic_write(path) as file:
        file.write(content + f"{_sha256(content)}\n".encode())


def check_block(path: Path, number: int) -> list[FileState]:
    """Check that a block is intact.

    Returns:
        The states of the image files.

    Raises:
        DataError: the block is damaged or cannot be read.
    """
    _, footer = _read_lines(path, number)
    return [None if state is None else (state[0], state[1]) for state in footer["states"]]


def read_rows(path: Path, number: int) -> list[Row]:
    """The rows of a block.

    Raises:
        DataError: see ``check_block``.
    """
    return [row_from_json(json.loads(line)) for line in _read_lines(path, number)[0]]


def _read_lines(path: Path, number: int) -> tuple[list[bytes], dict[str, Any]]:
    """The lines of the rows, and the parsed line after them."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    body, _, checksum = content[:-1].rpartition(b"\n")
    if not content.endswith(b"\n") or checksum.decode("latin-1") != _sha256(body + b"\n"):
        raise DataError(f"{path}: damaged, the checksum does not match")
    *lines, last = body.split(b"\n")
    footer = json.loads(last)
    if footer["block"] != number or footer["rows"] != len(lines):
        raise DataError(f"{path}: damaged, this is block {footer['block']} with {len(lines)} rows")
    return lines, footer


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _file_state(file: Path) -> FileState:
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        # Missing, or a name that no file can have: the row of the image reports it.
        return None
    return status.st_size, status.st_mtime_ns
