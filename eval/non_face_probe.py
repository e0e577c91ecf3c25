"""Adds an output to a model that tells what is not a face: a linear probe of tensors that it computes anyway."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from facerts.embedding.onnx_embedder import OnnxModel
from facerts.errors import ModelError
from facerts.export.merge_graphs import tensor_names, unused
from facerts.io.files import atomic_write
from facerts.onnx.contract import METADATA_KEY, Description, find_description
from facerts.onnx.graph_edit import load_graph

if TYPE_CHECKING:
    from onnx import ModelProto

ROLE = "not_a_face"
PURPOSE = "a probe for non-faces"


def probe_inputs(model: str | Path, tensors: Sequence[str], crops: NDArray[np.uint8]) -> NDArray[np.float64]:
    """What a probe of these tensors weights.

    Args:
        model: an .onnx file of ours.
        tensors: names of tensors in its graph, each ``(N,)`` or ``(N, d)``.
        crops: ``(N, 112, 112, 3) uint8`` RGB.

    Returns:
        ``(N, D)``, the tensors beside each other.
    """
    from onnx import TensorProto, helper

    path = Path(model)
    graph = _graph_with(path, tensors)
    description = _description(path, graph)
    given = {output.name for output in graph.graph.output}
    graph.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in tensors if name not in given
    )
    roles = {f"input {number}": name for number, name in enumerate(tensors)}
    description = description.model_copy(update={"outputs": roles, "quality": "none"})
    values = OnnxModel(path, content=graph.SerializeToString(), description=description).tensors(crops)
    return np.hstack([values[role].reshape(len(crops), -1) for role in roles]).astype(np.float64)


def add_non_face_probe(
    model: str | Path, out: str | Path, tensors: Sequence[str], weights: NDArray[np.floating], bias: float
) -> None:
    """Write a copy of a model with the output ``not_a_face``: above 0 for what is not a face.

    Args:
        model: an .onnx file of ours; an earlier probe in it is replaced.
        out: the .onnx file to write; may be the same.
        tensors: see ``probe_inputs``.
        weights: ``(D,)``, one for each column of ``probe_inputs``.
        bias: added to the weighted sum.
    """
    from onnx import TensorProto, helper, numpy_helper

    path, out = Path(model), Path(out)
    graph = _graph_with(path, tensors)
    description = _description(path, graph)
    _remove(graph, description.outputs.get(ROLE))
    output = unused(ROLE, tensor_names(graph).__contains__)
    shapes = {f"{output}/row": np.array([0, -1]), f"{output}/column": np.array([-1])}
    constants = {
        **shapes,
        f"{output}/weights": np.asarray(weights, dtype=np.float32)[:, None],
        f"{output}/bias": np.array([bias], dtype=np.float32),
    }
    graph.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    columns = [f"{output}/{number}" for number in range(len(tensors))]
    steps = [
        *(
            helper.make_node("Reshape", [name, f"{output}/row"], [column])
            for name, column in zip(tensors, columns, strict=True)
        ),
        helper.make_node("Concat", columns, [f"{output}/inputs"], axis=1),
        helper.make_node(
            "Gemm", [f"{output}/inputs", f"{output}/weights", f"{output}/bias"], [f"{output}/sum"]
        ),
        helper.make_node("Reshape", [f"{output}/sum", f"{output}/column"], [output]),
    ]
    for node in steps:
        node.name = node.output[0]
    graph.graph.node.extend(steps)
    batch = graph.graph.input[0].type.tensor_type.shape.dim[0]
    shape = [batch.dim_value or batch.dim_param or "N"]
    graph.graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, shape))
    described = description.model_copy(update={"outputs": {**description.outputs, ROLE: output}})
    (entry,) = (entry for entry in graph.metadata_props if entry.key == METADATA_KEY)
    entry.value = described.to_json()
    with atomic_write(out) as file:
        file.write(graph.SerializeToString())


def _description(path: Path, model: ModelProto) -> Description:
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    if METADATA_KEY not in metadata:
        raise ModelError(
            f"{path}: contains no description; {PURPOSE} is for models written by facerts export"
        )
    return find_description(path, metadata)


def _graph_with(path: Path, tensors: Sequence[str]) -> ModelProto:
    """The graph of a model, after checking that it computes these tensors."""
    graph = load_graph(path, PURPOSE)
    computed = {name for node in graph.graph.node for name in node.output}
    for name in tensors:
        if name not in computed:
            raise ModelError(f"{path}: its graph computes no tensor {name!r}")
    return graph


def _remove(model: ModelProto, output: str | None) -> None:
    """Remove an earlier probe."""
    if output is None:
        return
    graph, inner = model.graph, f"{output}/"
    parts: list[tuple[Any, list[str]]] = [
        (graph.node, [node.output[0] for node in graph.node]),
        (graph.initializer, [tensor.name for tensor in graph.initializer]),
        (graph.output, [value.name for value in graph.output]),
    ]
    for entries, names in parts:
        kept = [
            entry
            for entry, name in zip(entries, names, strict=True)
            if name != output and not name.startswith(inner)
        ]
        del entries[:]
        entries.extend(kept)
