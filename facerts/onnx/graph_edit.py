"""Edits of a model's graph with the onnx package, without PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from facerts.errors import ModelError, first_line, importing

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

# Operators whose second input is a weight.
WEIGHTED = ("Conv", "Gemm", "MatMul")


def load_graph(path: Path, purpose: str) -> ModelProto:
    """Read a model with its weights, to change it."""
    with importing(f"{purpose} needs onnx", "use"):
        import onnx
    if not path.is_file():
        raise ModelError(
            f"{path}: {purpose} must read the model's file again, and it is gone; if it was in a model pack that is "
            "a .zip, unpack the pack and give the folder"
        )
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf's errors have no public base class but Exception
        raise ModelError(f"{path}: onnx cannot read it ({first_line(error)})") from error
    for tensor in all_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise ModelError(
                f"{path}: {purpose} needs the weights in the model's own file, but {tensor.name!r} is in another; "
                "store them in one file with onnx.save_model"
            )
    return model


def all_tensors(message: Any) -> Iterator[TensorProto]:
    """The tensors of a model, or a part of one, wherever they are: in subgraphs, functions, sparse tensors …"""
    from onnx import TensorProto

    if isinstance(message, TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in (value,) if hasattr(value, "ListFields") else value:
                yield from all_tensors(part)


def constants(graph: GraphProto) -> dict[str, TensorProto]:
    """The tensors of initializers and of ``Constant`` nodes by name; changing one changes the graph."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if (node.op_type, attribute.name) == ("Constant", "value"):
                tensors[node.output[0]] = attribute.t
    return tensors


def constant_names(graph: GraphProto) -> set[str]:
    """Names of all tensors that do not depend on the graph's inputs."""
    given = {tensor.name for tensor in graph.initializer} | {""}
    for node in graph.node:
        if given.issuperset(reads(node)):
            given.update(node.output)
    return given - {""}


def keep_outputs(graph: GraphProto, outputs: Collection[str], inputs: Collection[str] = ()) -> set[str]:
    """Reduce a graph, in place, to what is needed to compute some of its tensors; other outputs are removed.

    Nothing before the tensors ``inputs`` is needed. Returns the names of all that the reduced graph reads or computes.
    """
    needed = set(outputs)
    for node in reversed(graph.node):  # nodes come after those whose outputs they read
        if needed.difference(inputs).intersection(node.output):
            needed.update(reads(node))
    _keep(graph.node, lambda node: bool(needed.difference(inputs).intersection(node.output)))
    _keep(graph.output, lambda output: output.name in outputs)
    _keep(graph.initializer, lambda weight: weight.name in needed)
    _keep(graph.value_info, lambda value: value.name in needed)
    return needed


def reads(node: NodeProto) -> Iterator[str]:
    """Names of the tensors that a node, or its subgraphs, may read."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from reads(inner)
            yield from (output.name for output in graph.output)


def _keep(entries: Any, is_needed: Callable[[Any], bool]) -> None:
    kept = [entry for entry in entries if is_needed(entry)]
    del entries[:]
    entries.extend(kept)
