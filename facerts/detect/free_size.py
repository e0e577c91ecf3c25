"""ONNX files for pictures of one size, made to take pictures of any.

The bytes are changed in place, as users of a model have no ``onnx``. An ONNX file is a protobuf message: fields, each a
tag with the field's number and kind, and then its content, which may be a message itself. Readers skip fields whose
number they do not know. So a tag that is overwritten by one of the same kind with such a number unsays the field, and
no length changes.

Source: ``onnx.proto`` of ONNX; "Encoding" in the documentation of Protocol Buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from facerts.errors import ModelError

# Kinds of fields, and how many bytes those have that are not a varint and do not say it themselves.
VARINT, BYTES = 0, 2
FIXED = {1: 8, 5: 4}
LONGEST_VARINT = 10

GRAPH, INPUT, OUTPUT, VALUE_INFO = 7, 11, 12, 13
# From a ValueInfoProto over its type, which is that of a tensor, to the shape.
SHAPE = (2, 1, 2)
DIM, DIM_VALUE = 1, 1
# No field of a graph, a tensor's type or a dimension; in graphs it is reserved.
UNREAD = 9


class _Field(NamedTuple):
    """Where in the file a field's tag is, and its content."""

    number: int
    kind: int
    tag: int
    start: int
    end: int


def free_sides(model: bytes, *, where: str | Path) -> bytes:
    """Free the sides of a network's input, so that it takes pictures of any size that its layers can be run on.

    With the sides go the shapes of the outputs and of what lies between, which hold for that one size. A file whose
    sides are free already is left as it is.

    Args:
        model: the content of an .onnx file whose input is (N, C, H, W).
        where: names the file in errors.

    Raises:
        ModelError: not an ONNX file, cut short, or its input has no shape.
    """
    try:
        shapes = list(_find(model, (GRAPH, INPUT, *SHAPE)))
        dims = [dim for shape in shapes for dim in list(_inside(model, shape, DIM))[2:]]
        sides = [side for dim in dims for side in _inside(model, dim, DIM_VALUE)]
        outputs = list(_find(model, (GRAPH, OUTPUT, *SHAPE)))
        between = list(_find(model, (GRAPH, VALUE_INFO)))
    except _NotProtobufError as error:
        raise ModelError(f"{where}: not an ONNX file, or a broken one: {error}") from error
    if not shapes:
        raise ModelError(f"{where}: not an ONNX file, or one whose input has no shape")
    if not sides:
        return model
    freed = bytearray(model)
    for field in (*sides, *outputs, *between):
        freed[field.tag] = UNREAD << 3 | field.kind
    return bytes(freed)


class _NotProtobufError(Exception):
    pass


def _find(data: bytes, path: Sequence[int]) -> Iterator[_Field]:
    """The fields at the end of a path of numbers, each of which leads from a message to those inside it."""
    found = [_Field(0, BYTES, 0, 0, len(data))]
    for number in path:
        found = [field for message in found for field in _inside(data, message, number)]
    yield from found


def _inside(data: bytes, message: _Field, number: int) -> Iterator[_Field]:
    """The fields of a message that have a number."""
    if message.kind != BYTES:
        raise _NotProtobufError(f"the field at byte {message.tag} is no message")
    at = message.start
    while at < message.end:
        tag, start = _varint(data, at, message.end)
        kind = tag & 7
        if kind == VARINT:
            _, end = _varint(data, start, message.end)
        elif kind == BYTES:
            length, start = _varint(data, start, message.end)
            end = start + length
        elif kind in FIXED:
            end = start + FIXED[kind]
        else:
            raise _NotProtobufError(f"at byte {at} is a field of kind {kind}")
        if end > message.end:
            raise _NotProtobufError(f"the field at byte {at} is cut short")
        if tag >> 3 == number:
            yield _Field(number, kind, at, start, end)
        at = end


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first, and where it ends."""
    value = 0
    for place in range(at, min(end, at + LONGEST_VARINT)):
        value |= (data[place] & 0x7F) << 7 * (place - at)
        if data[place] < 0x80:
            return value, place + 1
    raise _NotProtobufError(f"the number at byte {at} does not end")
