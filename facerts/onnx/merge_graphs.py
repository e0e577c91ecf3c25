"""Joins ONNX graphs: the same opset for both, one appended to the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from facerts.errors import ModelError, first_line

if TYPE_CHECKING:
    from onnx import ModelProto


def same_opset(first: ModelProto, second: ModelProto, minimum: int = 1) -> tuple[ModelProto, ModelProto]:
    """Two models, converted to the later one of their opsets, or to ``minimum`` if both are earlier."""
    version = max(_opset(first), _opset(second), minimum)
    return _converted(first, version), _converted(second, version)


def append(
    model: ModelProto, part: ModelProto, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> dict[str, str]:
    """Append a graph to that of a model, which keeps its own names, in place, and its outputs to the model's.

    ``inputs`` has the model's tensor for each input of the part, ``outputs`` the part's tensor for each output to add.
    Returns the name of each added output: prefixed if the model already has a tensor of that name.
    """
    from onnx import compose, helper

    part = _without_functions(part)
    _add_domains(model, part)
    taken = tensor_names(model)
    prefix = unused("facerts/", lambda prefix: any(name.startswith(prefix) for name in taken))
    types = {value.name: value.type for value in part.graph.output}
    part = compose.add_prefix(part, prefix)
    graph = model.graph
    # ONNX Runtime removes the identities; without them, tensors would have to be renamed wherever they are read.
    for name, tensor in inputs.items():
        graph.node.append(helper.make_node("Identity", [tensor], [f"{prefix}{name}"], f"{prefix}{name}"))
    graph.node.extend(part.graph.node)
    graph.initializer.extend(part.graph.initializer)
    graph.sparse_initializer.extend(part.graph.sparse_initializer)
    names = {}
    for role, tensor in outputs.items():
        name = names[role] = unused(role, taken.__contains__)
        taken.add(name)
        graph.node.append(helper.make_node("Identity", [f"{prefix}{tensor}"], [name], f"{prefix}output_{name}"))
        graph.output.append(helper.make_value_info(name, types[tensor]))
    # Before version 4, initializers had to be inputs too.
    model.ir_version = max(model.ir_version, part.ir_version, 4)
    return names


def add_length(model: ModelProto, tensor: str) -> str:
    """Add the length of each row of a tensor to the outputs of a graph of opset 13 or later; returns its name."""
    from onnx import TensorProto, helper, numpy_helper

    graph, prefix = model.graph, "facerts_length"
    graph.initializer.append(numpy_helper.from_array(np.array([1]), f"{prefix}_axes"))
    steps: list[tuple[str, list[str], dict[str, int]]] = [
        ("Cast", [tensor], {"to": TensorProto.FLOAT}),
        ("Flatten", [f"{prefix}_0"], {"axis": 1}),
        ("Mul", [f"{prefix}_1", f"{prefix}_1"], {}),
        ("ReduceSum", [f"{prefix}_2", f"{prefix}_axes"], {"keepdims": 0}),
        ("Sqrt", [f"{prefix}_3"], {}),
    ]
    for number, (kind, inputs, attributes) in enumerate(steps):
        name = f"{prefix}_{number}"
        graph.node.append(helper.make_node(kind, inputs, [name], name, **attributes))  # type: ignore[arg-type]
    graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]))
    return name


def tensor_names(model: ModelProto) -> set[str]:
    """All names of tensors and nodes."""
    graph = model.graph
    names = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    return names | {name for node in graph.node for name in (*node.input, *node.output, node.name)}


def unused(name: str, taken: Callable[[str], bool]) -> str:
    """A name that is not taken, prefixed if necessary."""
    while taken(name):
        name = f"posthoc_{name}"
    return name


def _add_domains(model: ModelProto, part: ModelProto) -> None:
    versions = {entry.domain: entry.version for entry in model.opset_import}
    used = {node.domain for node in part.graph.node}
    for entry in part.opset_import:
        if entry.domain in ("", "ai.onnx") or entry.domain not in used:
            continue
        if versions.get(entry.domain, entry.version) != entry.version:
            raise ModelError(
                f"the models use versions {versions[entry.domain]} and {entry.version} of the operators "
                f"{entry.domain}, which cannot be in one file"
            )
        if entry.domain not in versions:
            model.opset_import.append(entry)


def _without_functions(model: ModelProto) -> ModelProto:
    from onnx import inliner

    return inliner.inline_local_functions(model) if model.functions else model


def _opset(model: ModelProto) -> int:
    return next(int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx"))


def _converted(model: ModelProto, version: int) -> ModelProto:
    from onnx import version_converter

    if _opset(model) == version:
        return model
    try:
        # The converter drops functions.
        return version_converter.convert_version(_without_functions(model), version)
    except Exception as error:  # the converter's errors share no base class but Exception
        raise ModelError(
            f"the model uses ONNX opset {_opset(model)} and cannot be converted to opset {version} "
            f"({first_line(error)})"
        ) from error
