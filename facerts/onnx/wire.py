"""Changes of ONNX files without the onnx package, which scoring is installed without: metadata, and the input size.

An ONNX file is a single message of Protobuf (https://protobuf.dev/programming-guides/encoding): a sequence of fields,
each a tag and a payload. The wire type in the tag, or the bytes after it, give the payload's length; a payload may
itself be a message. Only requested fields are read and everything else is skipped or copied, so the size of the network
does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from facerts.errors import ModelError
from facerts.io.files import atomic_write, read_file, reading

# Wire types, and the payload sizes of those with a fixed size.
VARINT, LENGTH = 0, 2
FIXED = {1: 8, 5: 4}
MAX_VARINT_BYTES = 10

# Far beyond any real model: a file must not decide how much time reading it takes.
MAX_FIELDS = 1_000_000
# Field numbers of ModelProto and StringStringEntryProto in onnx.proto.
METADATA_PROPS = 14
KEY, VALUE = 1, 2
MAX_FILE = (2 << 30) - 1  # protobuf's own limit
GRAPH, INPUT, OUTPUT, VALUE_INFO = 7, 11, 12, 13
# Path from a ValueInfoProto to its shape: type, tensor_type, shape.
SHAPE = (2, 1, 2)
DIM, DIM_VALUE = 1, 1
# Not the number of any field of a graph, a tensor type or a dimension; in graphs it is reserved.
UNUSED = 9


@dataclass(frozen=True)
class WireField:
    """A field of a message; ``kind`` is its wire type: ``VARINT``, ``LENGTH`` or a key of ``FIXED``."""

    number: int
    kind: int
    start: int
    payload: int
    end: int


class WireReader:
    """Reads the fields of an ONNX file's content."""

    def __init__(self, content: bytes, where: str | Path) -> None:
        self.content = content
        self.where = where

    def fields(self, message: WireField | None = None) -> Iterator[WireField]:
        """The fields of a message in the file, or of the file itself."""
        if message is not None and message.kind != LENGTH:
            raise ModelError(f"{self.where}: the field at byte {message.start} is not a message; not an ONNX model")
        at, end = (0, len(self.content)) if message is None else (message.payload, message.end)
        for _ in range(MAX_FIELDS):
            if at == end:
                return
            field = self._field(at, end)
            yield field
            at = field.end
        raise ModelError(f"{self.where}: more than {MAX_FIELDS:,} fields by byte {at}; not an ONNX model")

    def find(self, path: Sequence[int], message: WireField | None = None) -> list[WireField]:
        """All fields at the end of a path of field numbers through nested messages."""
        matches: list[WireField | None] = [message]
        for number in path:
            matches = [field for parent in matches for field in self.fields(parent) if field.number == number]
        return [field for field in matches if field is not None]

    def _field(self, at: int, end: int) -> WireField:
        tag, payload = self._varint(at, end)
        number, kind = tag >> 3, tag & 7
        if kind == LENGTH:
            size, payload = self._varint(payload, end)
        elif kind == VARINT:
            size = self._varint(payload, end)[1] - payload
        elif kind in FIXED:
            size = FIXED[kind]
        else:
            raise ModelError(f"{self.where}: no field of an ONNX model begins at byte {at} (kind {kind})")
        if not number:
            raise ModelError(f"{self.where}: no field of an ONNX model begins at byte {at} (number 0)")
        if payload + size > end:
            raise ModelError(
                f"{self.where}: field {number} at byte {at} needs {size:,} bytes, but only {end - payload:,} are left "
                f"up to byte {end}; the file is truncated, copy it again"
            )
        return WireField(number, kind, at, payload, payload + size)

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """A number in groups of seven bits, lowest first, and the offset after it."""
        value = 0
        for place, byte in enumerate(self.content[at : min(at + MAX_VARINT_BYTES, end)]):
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value, at + place + 1
        if end - at < MAX_VARINT_BYTES:
            raise ModelError(
                f"{self.where}: the number at byte {at} is incomplete; the file is truncated, copy it again"
            )
        raise ModelError(
            f"{self.where}: no number ends within {MAX_VARINT_BYTES} bytes of byte {at}; not an ONNX model"
        )


def replace_entry(path: Path, out: Path, key: str, value: str) -> None:
    """Write a copy of an ONNX file with new metadata under a key; every other byte stays the same.

    ``out`` may be ``path`` itself, which is replaced atomically. The entry replaces all of that key at the position of
    the first, or is appended.
    """
    entry = _delimited(KEY, key.encode()) + _delimited(VALUE, value.encode())
    entry = _delimited(METADATA_PROPS, entry)
    with reading(path, ModelError):
        content = read_file(path)
    entries = _entries(WireReader(content, path), key)
    size = len(content) + len(entry) - sum(field.end - field.start for field in entries)
    if size > MAX_FILE:
        raise ModelError(f"{path}: with the metadata it would have {size:,} bytes, but ONNX files are limited to 2 GiB")
    # What lies between the old entries stays; the new one takes the place of the first of them, or the end.
    starts = [0, *(field.end for field in entries)]
    ends = [*(field.start for field in entries), len(content)]
    kept = [memoryview(content)[start:end] for start, end in zip(starts, ends, strict=True)]
    with atomic_write(out) as target:
        for part in (kept[0], entry, *kept[1:]):
            target.write(part)


def _entries(file: WireReader, key: str) -> list[WireField]:
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
    return _varint(number << 3 | LENGTH) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    groups = []
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def make_shape_dynamic(model: bytes, *, where: str | Path) -> bytes:
    """Make the height and width of a network's input dynamic, so that it accepts any size that its layers can handle.

    Protobuf readers skip fields with an unknown number, so overwriting a tag by one of the same wire type with such a
    number removes the field without changing any length.

    The shapes of outputs and intermediate tensors, which are valid for the one size only, are removed too. A file whose
    input, (N, C, H, W), is already dynamic is returned unchanged; the result always has the same length.
    """
    file = WireReader(model, where)
    shapes = file.find((GRAPH, INPUT, *SHAPE))
    dims = [dim for shape in shapes for dim in file.find([DIM], shape)[2:]]
    sides = [side for dim in dims for side in file.find([DIM_VALUE], dim)]
    if not shapes:
        raise ModelError(f"{where}: not an ONNX model, or one whose input has no shape")
    if not sides:
        return model
    patched = bytearray(model)
    for field in (*sides, *file.find((GRAPH, OUTPUT, *SHAPE)), *file.find((GRAPH, VALUE_INFO))):
        patched[field.start] = UNUSED << 3 | field.kind
    return bytes(patched)
