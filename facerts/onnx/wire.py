"""A reader of Protobuf's wire format, for ONNX files, without the onnx package.

An ONNX file is a single message (https://protobuf.dev/programming-guides/encoding): a sequence of fields, each a tag
and a payload. The wire type in the tag, or the bytes after it, give the payload's length; a payload may itself be a
message. Only requested fields are read and everything else is skipped, so the size of the network does not matter.

It is for what ONNX Runtime cannot do: change a file's metadata (``metadata``), or the fixed input size of a file that
it has not seen yet (``dynamic_shape``). The onnx package is not used, because scoring is installed without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from facerts.errors import ModelError

# Wire types, and the payload sizes of those with a fixed size.
VARINT, LENGTH = 0, 2
FIXED = {1: 8, 5: 4}
MAX_VARINT_BYTES = 10

# Far beyond any real model: a file must not decide how much time reading it takes.
MAX_FIELDS = 1_000_000


@dataclass(frozen=True)
class WireField:
    """A field of a message.

    Attributes:
        kind: wire type: ``VARINT``, ``LENGTH`` or a key of ``FIXED``.
    """

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
            raise ModelError(
                f"{self.where}: the field at byte {message.start} is not a message; not an ONNX model"
            )
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
