"""The metadata of an ONNX file, read and replaced without the onnx package.

Only the entries of metadata are looked at; all other bytes are skipped, or copied as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from facerts.errors import ModelError
from facerts.io.files import atomic_write
from facerts.onnx.wire import BLOCK, LENGTH, WireField, WireReader

# WireField numbers of ModelProto in onnx.proto, and of StringStringEntryProto there.
GRAPH, METADATA_PROPS = 7, 14
KEY, VALUE = 1, 2
MAX_FILE = (2 << 30) - 1  # protobuf's own limit


def read_entry(path: Path, key: str) -> str | None:
    """The metadata that an ONNX file has under a key; None where it has none.

    Where the key stands several times, the last one counts, as for ONNX Runtime.

    Raises:
        ModelError: the file cannot be read, is no ONNX model or is cut short; the message says at which byte.
    """
    with _open(path) as file:
        found = _entries(file, key)
        if not found:
            return None
        values = file.find([VALUE], found[-1])
        return file.text(values[-1]) if values else ""


def replace_entry(path: Path, out: Path, key: str, value: str) -> None:
    """Write an ONNX file anew with other metadata under a key; every other byte stays as it is.

    Args:
        path: of the model.
        out: where to write; may be ``path`` itself, which is replaced when the new file is whole.
        key: of the entry, which is put in place of the first of that key, or at the end; there is one afterwards.
        value: of the entry.

    Raises:
        ModelError: as ``read_entry``, or the file would be larger than an ONNX file can be.
    """
    entry = _sized(KEY, key.encode()) + _sized(VALUE, value.encode())
    entry = _sized(METADATA_PROPS, entry)
    with _open(path) as file:
        found = _entries(file, key)
        size = file.size + len(entry) - sum(field.end - field.start for field in found)
        if size > MAX_FILE:
            raise ModelError(
                f"{path}: with its metadata it would have {size:,} bytes, and ONNX files end at 2 GiB"
            )
        with atomic_write(out) as target:
            at = 0
            for field in found:
                file.copy(at, field.start, target)
                if field is found[0]:
                    target.write(entry)
                at = field.end
            file.copy(at, file.size, target)
            if not found:
                target.write(entry)


@contextmanager
def _open(path: Path) -> Iterator[WireReader]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
    with file:
        yield WireReader(file, path)


def _entries(file: WireReader, key: str) -> list[WireField]:
    """The entries of metadata that have a key, in their order."""
    found, graphs = [], 0
    for field in file.fields():
        graphs += field.number == GRAPH
        if field.number == METADATA_PROPS and _key(file, field) == key.encode():
            found.append(field)
    if not graphs:
        raise ModelError(f"{file.where}: there is no graph in it; not an ONNX model")
    return found


def _key(file: WireReader, entry: WireField) -> bytes | None:
    """The key of an entry; None for one of megabytes, which is nobody's and is not read."""
    if entry.kind != LENGTH:
        raise ModelError(f"{file.where}: field {METADATA_PROPS} at byte {entry.start} is not metadata")
    keys = [field for field in file.find([KEY], entry) if field.kind == LENGTH]
    if not keys:
        return b""
    size = keys[-1].end - keys[-1].payload
    return file.read(keys[-1].payload, size) if size <= BLOCK else None


def _sized(number: int, payload: bytes) -> bytes:
    """A field whose payload has its length before it."""
    return _number(number << 3 | LENGTH) + _number(len(payload)) + payload


def _number(value: int) -> bytes:
    groups = []
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
