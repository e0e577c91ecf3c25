"""Protobuf's wire format as ONNX files have it, read without the onnx package.

An ONNX file is one message (https://protobuf.dev/programming-guides/encoding): fields one after the other, each a tag
and a payload, whose length is given by the kind in the tag or by the bytes after it; a payload may be a message itself.
Only the fields that are asked for are read; everything else is skipped, so neither the size of a network nor its
content matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from facerts.errors import ModelError

# Kinds of fields, and how many bytes those have that neither end by themselves nor say their length.
VARINT, LENGTH = 0, 2
FIXED = {1: 8, 5: 4}
LONGEST_VARINT = 10
BLOCK = 1 << 20

# Bounds far beyond any model: what a file claims must not decide how long it takes or how much is read.
MAX_FIELDS = 1_000_000
MAX_TEXT = 64 << 20


@dataclass(frozen=True)
class WireField:
    """A field of a message.

    Attributes:
        number: which field of the message it is.
        kind: of its payload: ``VARINT``, ``LENGTH`` or a key of ``FIXED``.
        start: byte of the file at which its tag begins.
        payload: byte at which its payload begins.
        end: byte after its payload.
    """

    number: int
    kind: int
    start: int
    payload: int
    end: int


class WireReader:
    """Reads the fields of an ONNX file.

    Args:
        file: seekable.
        where: names the file in errors.

    Raises:
        ModelError: by every method, for a file that is cut short or not an ONNX model; the message says at which byte.
    """

    def __init__(self, file: IO[bytes], where: str | Path) -> None:
        self._file = file
        self.where = where
        self.size = file.seek(0, 2)

    def fields(self, message: WireField | None = None) -> Iterator[WireField]:
        """The fields of a message inside the file, or of the file itself."""
        if message is not None and message.kind != LENGTH:
            raise ModelError(
                f"{self.where}: the field at byte {message.start} is not a message; not an ONNX model"
            )
        at, end = (0, self.size) if message is None else (message.payload, message.end)
        for _ in range(MAX_FIELDS):
            if at == end:
                return
            field = self._field(at, end)
            yield field
            at = field.end
        raise ModelError(f"{self.where}: more than {MAX_FIELDS:,} fields by byte {at}; not an ONNX model")

    def find(self, path: Sequence[int], message: WireField | None = None) -> list[WireField]:
        """The fields at the end of a path of field numbers, each of which leads from a message to those inside it."""
        found: list[WireField | None] = [message]
        for number in path:
            found = [field for each in found for field in self.fields(each) if field.number == number]
        return [field for field in found if field is not None]

    def read(self, start: int, size: int) -> bytes:
        """Bytes of the file."""
        self._file.seek(start)
        data = self._file.read(size)
        if len(data) != size:
            raise ModelError(
                f"{self.where}: it ended at byte {start + len(data)} while it was read; copy it again"
            )
        return data

    def text(self, field: WireField) -> str:
        """A field's payload as text."""
        size = field.end - field.payload
        if field.kind != LENGTH or size > MAX_TEXT:
            raise ModelError(
                f"{self.where}: the metadata at byte {field.payload} is no text of a bearable length ({size:,} bytes)"
            )
        try:
            return self.read(field.payload, size).decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"{self.where}: the metadata at byte {field.payload} is not UTF-8") from error

    def copy(self, start: int, end: int, target: IO[bytes]) -> None:
        """Some of the file's bytes, block by block."""
        for at in range(start, end, BLOCK):
            target.write(self.read(at, min(BLOCK, end - at)))

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
        """A number in groups of seven bits, the lowest first, and where it ends."""
        value = 0
        for place, byte in enumerate(self.read(at, min(LONGEST_VARINT, end - at))):
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value, at + place + 1
        if end - at < LONGEST_VARINT:
            raise ModelError(
                f"{self.where}: the number at byte {at} is cut short; the file is truncated, copy it again"
            )
        raise ModelError(
            f"{self.where}: no number ends within {LONGEST_VARINT} bytes of byte {at}; not an ONNX model"
        )
