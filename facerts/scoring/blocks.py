"""The rows of one block of images as a file that shows whether it is complete and whether its images have changed.

The file has one line of JSON per row, then a line with the number of the block, its number of rows, and the size and
modification time of each file that the images were read from, and last the SHA-256 of everything before it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from facerts.datasets.source import Source
from facerts.errors import DataError
from facerts.io.files import atomic_write, read_file
from facerts.io.job import FileState, file_state
from facerts.scoring.row import Row

_ROW, _STATES = TypeAdapter(Row), TypeAdapter(list[FileState])


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
    return [file_state(file) for file in block_files(source, span)]


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
    """
    return _read(path, number)[1]


def read_rows(path: Path, number: int) -> list[Row]:
    """The rows of a block."""
    return _read(path, number)[0]


def _read(path: Path, number: int) -> tuple[list[Row], list[FileState]]:
    """The rows of a block, and the states of the image files."""
    try:
        content = read_file(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    body, _, checksum = content[:-1].rpartition(b"\n")
    if not content.endswith(b"\n") or checksum.decode("latin-1") != _sha256(body + b"\n"):
        raise DataError(f"{path}: damaged, the checksum does not match")
    *lines, last = body.split(b"\n")
    try:
        footer = json.loads(last)
        if footer["block"] != number or footer["rows"] != len(lines):
            raise DataError(f"{path}: damaged, this is block {footer['block']} with {len(lines)} rows")
        return [_ROW.validate_python(json.loads(line)) for line in lines], _STATES.validate_python(
            footer["states"]
        )
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        # The checksum shows that a block is whole, not who wrote it.
        raise DataError(f"{path}: damaged, these are not rows of images") from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
