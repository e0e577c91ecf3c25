"""ONNX files with a fixed input size, changed to accept images of any size.

The bytes are patched in place, so that users of a model do not need the ``onnx`` package. Protobuf readers skip fields
with an unknown number, so overwriting a tag by one of the same wire type with such a number removes the field without
changing any length.

Source: ``onnx.proto`` of ONNX.
"""

from __future__ import annotations

from pathlib import Path

from facerts.errors import ModelError
from facerts.onnx.wire import WireReader

GRAPH, INPUT, OUTPUT, VALUE_INFO = 7, 11, 12, 13
# Path from a ValueInfoProto to its shape: type, tensor_type, shape.
SHAPE = (2, 1, 2)
DIM, DIM_VALUE = 1, 1
# Not the number of any field of a graph, a tensor type or a dimension; in graphs it is reserved.
UNUSED = 9


def make_shape_dynamic(model: bytes, *, where: str | Path) -> bytes:
    """Make the height and width of a network's input dynamic, so that it accepts any size that its layers can handle.

    The shapes of outputs and intermediate tensors, which are valid for the one size only, are removed too. A file whose
    input is already dynamic is returned unchanged.

    Args:
        model: content of an .onnx file whose input is (N, C, H, W).

    Returns:
        The changed content, of the same length.
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
