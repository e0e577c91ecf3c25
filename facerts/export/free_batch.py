"""Files that take one batch size only, changed to take any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from facerts.onnx.graph_edit import constants

if TYPE_CHECKING:
    from onnx import ModelProto

ANY = "N"


def fixed_batch(model: ModelProto) -> int | None:
    """The only batch size that a model with one input takes; None for any."""
    axis = model.graph.input[0].type.tensor_type.shape.dim[0]
    return axis.dim_value if axis.HasField("dim_value") else None


def free_batch(model: ModelProto) -> None:
    """Let a model with one input take batches of any size, in place.

    The axis of the batch is named in the input and the outputs, and constant shapes that begin with the old size begin
    with 0, which is ``Reshape``'s word for "as in the input". Whether the graph then computes the same must be checked:
    an operator inside may still count on the old size.
    """
    from onnx import numpy_helper

    batch = fixed_batch(model)
    if batch is None:
        return
    graph = model.graph
    for value in (graph.input[0], *graph.output):
        if len(value.type.tensor_type.shape.dim):
            value.type.tensor_type.shape.dim[0].dim_param = ANY
    # They hold for the old size only.
    del graph.value_info[:]
    shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for name, tensor in constants(graph).items():
        if name in shapes:
            shape = numpy_helper.to_array(tensor).copy()
            if shape.size > 1 and shape[0] == batch:
                shape[0] = 0
                tensor.CopyFrom(numpy_helper.from_array(shape.astype(np.int64), tensor.name))
