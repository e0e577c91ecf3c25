"""Replace the metadata of an ONNX file without the onnx package; ONNX Runtime reads it.

Only metadata entries are parsed; all other bytes are copied unchanged.
"""

from __future__ import annotations

from pathlib import Path

from facerts.errors import ModelError
from facerts.io.files import atomic_write, read_file
from facerts.onnx.wire import LENGTH, WireField, WireReader

# Field numbers of ModelProto and StringStringEntryProto in onnx.proto.
GRAPH, METADATA_PROPS = 7, 14
KEY, VALUE = 1, 2
MAX_FILE = (2 << 30) - 1  # protobuf's own limit


def replace_entry(path: Path, out: Path, key: str, value: str) -> None:
    """Write a copy of an ONNX file with new metadata under a key; every other byte stays the same.

    Args:
        out: the file to write; may be ``path`` itself, which is replaced atomically.
        key: key of the entry, which replaces all entries of that key at the position of the first, or is appended.
    """
    entry = _delimited(KEY, key.encode()) + _delimited(VALUE, value.encode())
    entry = _delimited(METADATA_PROPS, entry)
    try:
        content = read_file(path)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
    entries = _entries(WireReader(content, path), key)
    size = len(content) + len(entry) - sum(field.end - field.start for field in entries)
    if size > MAX_FILE:
        raise ModelError(
            f"{path}: with the metadata it would have {size:,} bytes, but ONNX files are limited to 2 GiB"
        )
    # What lies between the old entries stays; the new one takes the place of the first of them, or the end.
    starts = [0, *(field.end for field in entries)]
    ends = [*(field.start for field in entries), len(content)]
    kept = [memoryview(content)[start:end] for start, end in zip(starts, ends, strict=True)]
    with atomic_write(out) as target:
        for part in (kept[0], entry, *kept[1:]):
            target.write(part)


def _entries(file: WireReader, key: str) -> list[WireField]:
    """The metadata entries with a key, in order."""
    entries, graphs = [], 0
    for field in file.fields():
        graphs += field.number == GRAPH
        if field.number == METADATA_PROPS and _key(file, field) == key.encode():
            entries.append(field)
    if not graphs:
        raise ModelError(f"{file.where}: it contains no graph; not an ONNX model")
    return entries


def _key(file: WireReader, entry: WireField) -> bytes:
    if entry.kind != LENGTH:
        raise ModelError(f"{file.where}: field {METADATA_PROPS} at byte {entry.start} is not metadata")
    keys = [field for field in file.find([KEY], entry) if field.kind == LENGTH]
    return file.content[keys[-1].payload : keys[-1].end] if keys else b""


def _delimited(number: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return _varint(number << 3 | LENGTH) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    groups = []
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
