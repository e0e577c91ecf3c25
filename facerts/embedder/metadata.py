"""The metadata of an ONNX file, read and replaced without the onnx package.

An ONNX file is one message in protobuf's wire format (https://protobuf.dev/programming-guides/encoding): fields one
after the other, each a tag and a payload, whose length the tag's kind or the bytes behind it tell. Only the fields
of the outermost message are looked at, and of these only the metadata; all other bytes are passed over or copied as
they are, so that neither the size of a network nor what is in it matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from facerts.errors import ModelError
from facerts.files import atomic_write

# Of ModelProto in onnx.proto.
GRAPH, METADATA_PROPS = 7, 14
# Of StringStringEntryProto there.
KEY, VALUE = 1, 2

VARINT, LENGTH = 0, 2
FIXED = {1: 8, 5: 4}
LONGEST_VARINT = 10
BLOCK = 1 << 20

# Bounds far beyond any model: what a file claims of itself must not decide how long it takes or how much is read.
MOST_FIELDS = 1_000_000
LARGEST_VALUE = 64 << 20
LARGEST_FILE = (2 << 30) - 1  # protobuf's own


@dataclass(frozen=True)
class _Field:
    """A field of a message: where its tag begins, and where its payload begins and ends."""

    number: int
    kind: int
    start: int
    payload: int
    end: int


def read_entry(path: Path, key: str) -> str | None:
    """The metadata that an ONNX file has under a key; None where it has none.

    Where the key stands several times, the last one counts, as for ONNX Runtime.

    Raises:
        ModelError: the file cannot be read, is no ONNX model or is cut short; the message says at which byte.
    """
    with _File(path) as file:
        found = file.entries(key)
        if not found:
            return None
        values = [field for field in file.fields(found[-1]) if field.number == VALUE]
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
    with _File(path) as file:
        found = file.entries(key)
        size = file.size + len(entry) - sum(field.end - field.start for field in found)
        if size > LARGEST_FILE:
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


class _File:
    """An ONNX file that is open for reading, which the ``with`` statement closes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file: IO[bytes] = path.open("rb")
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
        self.size = self._file.seek(0, 2)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def entries(self, key: str) -> list[_Field]:
        """The entries of metadata that have a key, in their order."""
        found, graphs = [], 0
        for field in self.fields():
            graphs += field.number == GRAPH
            if field.number == METADATA_PROPS and self._key(field) == key.encode():
                found.append(field)
        if not graphs:
            raise ModelError(f"{self._path}: there is no graph in it; not an ONNX model")
        return found

    def fields(self, message: _Field | None = None) -> Iterator[_Field]:
        """The fields of a message inside the file, or of the file itself."""
        at, end = (0, self.size) if message is None else (message.payload, message.end)
        for _ in range(MOST_FIELDS):
            if at == end:
                return
            field = self._field(at, end)
            yield field
            at = field.end
        raise ModelError(f"{self._path}: more than {MOST_FIELDS:,} fields by byte {at}; not an ONNX model")

    def text(self, field: _Field) -> str:
        """A field's payload as text."""
        size = field.end - field.payload
        if field.kind != LENGTH or size > LARGEST_VALUE:
            raise ModelError(
                f"{self._path}: the metadata at byte {field.payload} is no text of a bearable length ({size:,} bytes)"
            )
        try:
            return self._bytes(field.payload, size).decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"{self._path}: the metadata at byte {field.payload} is not UTF-8") from error

    def copy(self, start: int, end: int, target: IO[bytes]) -> None:
        """Some of the file's bytes, block by block."""
        for at in range(start, end, BLOCK):
            target.write(self._bytes(at, min(BLOCK, end - at)))

    def _key(self, entry: _Field) -> bytes | None:
        if entry.kind != LENGTH:
            raise ModelError(f"{self._path}: field {METADATA_PROPS} at byte {entry.start} is not metadata")
        keys = [field for field in self.fields(entry) if field.number == KEY and field.kind == LENGTH]
        if not keys:
            return b""
        size = keys[-1].end - keys[-1].payload
        return self._bytes(keys[-1].payload, size) if size <= BLOCK else None

    def _field(self, at: int, end: int) -> _Field:
        tag, payload = self._varint(at, end)
        number, kind = tag >> 3, tag & 7
        if kind == LENGTH:
            size, payload = self._varint(payload, end)
        elif kind == VARINT:
            size = self._varint(payload, end)[1] - payload
        elif kind in FIXED:
            size = FIXED[kind]
        else:
            raise ModelError(f"{self._path}: no field of an ONNX model begins at byte {at} (kind {kind})")
        if not number:
            raise ModelError(f"{self._path}: no field of an ONNX model begins at byte {at} (number 0)")
        if payload + size > end:
            raise ModelError(
                f"{self._path}: field {number} at byte {at} needs {size:,} bytes, but only {end - payload:,} are left "
                f"up to byte {end}; the file is truncated, copy it again"
            )
        return _Field(number, kind, at, payload, payload + size)

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """A number in groups of seven bits, the lowest first, and where it ends."""
        value = 0
        for place, byte in enumerate(self._bytes(at, min(LONGEST_VARINT, end - at))):
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value, at + place + 1
        if end - at < LONGEST_VARINT:
            raise ModelError(
                f"{self._path}: the number at byte {at} is cut short; the file is truncated, copy it again"
            )
        raise ModelError(
            f"{self._path}: no number ends within {LONGEST_VARINT} bytes of byte {at}; not an ONNX model"
        )

    def _bytes(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        data = self._file.read(size)
        if len(data) != size:
            raise ModelError(
                f"{self._path}: it ended at byte {at + len(data)} while it was read; copy it again"
            )
        return data


def _sized(number: int, payload: bytes) -> bytes:
    """A field whose payload has its length before it."""
    return _number(number << 3 | LENGTH) + _number(len(payload)) + payload


def _number(value: int) -> bytes:
    groups = []
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
