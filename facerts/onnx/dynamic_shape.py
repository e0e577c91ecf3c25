"""ONNX files for images of one size, changed to take images of any.

The bytes are changed in place, since users of a model do not need ``onnx``. Readers of protobuf skip fields whose
number they do not know, so a tag that is overwritten by one of the same kind with such a number removes the field,
and no length changes.

Source: ``onnx.proto`` of ONNX.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from facerts.errors import ModelError
from facerts.onnx.wire import WireReader

GRAPH, INPUT, OUTPUT, VALUE_INFO = 7, 11, 12, 13
# From a ValueInfoProto over its type, which is that of a tensor, to the shape.
SHAPE = (2, 1, 2)
DIM, DIM_VALUE = 1, 1
# No field of a graph, a tensor's type or a dimension; in graphs it is reserved.
UNUSED = 9


def make_shape_dynamic(model: bytes, *, where: str | Path) -> bytes:
    """Make the sides of a network's input dynamic, so that it takes images of any size that its layers can handle.

    The shapes of the outputs and of the tensors in between, which hold for the one size, are removed too. A file whose
    sides are dynamic already stays as it is.

    Args:
        model: the content of an .onnx file whose input is (N, C, H, W).
        where: names the file in errors.

    Returns:
        the changed content, of the same length.

    Raises:
        ModelError: not an ONNX file, cut short, or its input has no shape.
    """
    file = WireReader(BytesIO(model), where)
    shapes = file.find((GRAPH, INPUT, *SHAPE))
    dims = [dim for shape in shapes for dim in file.find([DIM], shape)[2:]]
    sides = [side for dim in dims for side in file.find([DIM_VALUE], dim)]
    if not shapes:
        raise ModelError(f"{where}: not an ONNX model, or one whose input has no shape")
    if not sides:
        return model
    freed = bytearray(model)
    for field in (*sides, *file.find((GRAPH, OUTPUT, *SHAPE)), *file.find((GRAPH, VALUE_INFO))):
        freed[field.start] = UNUSED << 3 | field.kind
    return bytes(freed)
